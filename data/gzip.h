#pragma once
// Files that gzip has compressed, read through zlib where keel was built with it.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

// Whether the file begins as gzip's do.
bool is_gzip(const std::string& path);
// Whether this build reads them.
bool reads_gzip();

struct GzipOptions {
  // Of decompress_once(): empty for $XDG_CACHE_HOME/keel or ~/.cache/keel.
  std::string cache_folder = {};
  // Told how many of the compressed bytes are read.
  std::function<void(std::uint64_t done, std::uint64_t all)> progress = {};
};

// Calls put with what is in the file, piece by piece; several compressed parts follow each other. A file that is cut
// short or damaged is an Error that names it, and so is any where this build has no zlib.
void decompress(const std::string& path, const std::function<void(std::string_view piece)>& put,
                const GzipOptions& options = {});

// The path of a file with the contents, for readers that need any place of it at once. It is written to the cache
// folder on the first call and found there again as long as size and times of the compressed one are the same; it may
// be removed.
std::string decompress_once(const std::string& path, const GzipOptions& options = {});

}  // namespace keel
