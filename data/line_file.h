#pragma once
// What readers of files of lines have in common: of texts, of JSON lines and of tables.

#include <cstdint>
#include <functional>
#include <string>

#include "keel/runtime/language.h"

namespace keel {

// What becomes of a file's empty lines. Those at its end are always left out.
enum class EmptyLines : unsigned char {
  left_out,
  refused,  // an Error names the first that others stand behind: what answers lines would answer others than it seems
};

struct LineFileOptions {
  EmptyLines empty_lines = EmptyLines::left_out;
  // Of the index of a large file that cannot be written beside it, and of what gzip has compressed; empty: below
  // ~/.cache.
  std::string cache_folder = {};
  // Told how many of the file's bytes are indexed.
  std::function<void(std::uint64_t done, std::uint64_t all)> progress = {};
};

}  // namespace keel
