#include "keel/data/gzip.h"

#include <sys/stat.h>

#ifdef KEEL_HAVE_ZLIB
#include <zlib.h>
#endif

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "keel/data/cache_folder.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/xxh3.h"

namespace keel {
namespace {

constexpr const char* kEnding = ".keel-plain";

// Of the path, the size and the times of a file.
std::string name_of_contents(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) throw Error(concat("'", path, "' cannot be read"), ErrorKind::io);
  const std::string of =
      concat(std::filesystem::absolute(path).string(), ' ', status.st_size, ' ', status.st_mtim.tv_sec, ' ',
             status.st_mtim.tv_nsec, ' ', status.st_ctim.tv_sec, ' ', status.st_ctim.tv_nsec);
  const Hash128 hash = xxh3(std::as_bytes(std::span(of)));
  std::array<char, 33> text = {};
  std::snprintf(text.data(), text.size(), "%016llx%016llx", static_cast<unsigned long long>(hash.high),
                static_cast<unsigned long long>(hash.low));
  return text.data();
}

}  // namespace

bool is_gzip(const std::string& path) {
  const InputFile file(path);
  std::array<char, 2> mark = {};
  if (file.size() < mark.size()) return false;
  file.read(0, std::as_writable_bytes(std::span(mark)));
  return mark[0] == '\x1f' && mark[1] == '\x8b';
}

#ifdef KEEL_HAVE_ZLIB

bool reads_gzip() { return true; }

void decompress(const std::string& path, const std::function<void(std::string_view piece)>& put,
                const GzipOptions& options) {
  const std::uint64_t size = InputFile(path).size();
  const auto close = [](gzFile file) { gzclose_r(file); };
  std::unique_ptr<gzFile_s, decltype(close)> file(gzopen(path.c_str(), "rb"), close);
  if (!file) throw Error(concat("'", path, "' cannot be read"), ErrorKind::io);
  std::vector<char> piece(std::size_t{1} << 20);
  const auto refuse = [&](std::string_view why) {
    throw Error(concat("'", path, "' is not a whole file of gzip: ", why));
  };
  for (;;) {
    const int count = gzread(file.get(), piece.data(), static_cast<unsigned>(piece.size()));
    int code = Z_OK;
    const char* const why = gzerror(file.get(), &code);
    if (count < 0 || code == Z_BUF_ERROR) refuse(code == Z_BUF_ERROR ? "it is cut short" : why);
    if (count == 0) break;
    put({piece.data(), static_cast<std::size_t>(count)});
    if (options.progress) options.progress(static_cast<std::uint64_t>(gzoffset(file.get())), size);
  }
}

#else

bool reads_gzip() { return false; }

void decompress(const std::string& path, const std::function<void(std::string_view piece)>&, const GzipOptions&) {
  throw Error(concat("'", path, "' is compressed by gzip, and this build has no zlib; decompress it first"),
              ErrorKind::unsupported);
}

#endif

std::string decompress_once(const std::string& path, const GzipOptions& options) {
  KEEL_CHECK(reads_gzip(), "'", path, "' is compressed by gzip, and this build has no zlib; decompress it first");
  const std::string folder = folder_for_caches(options.cache_folder);
  KEEL_CHECK(!folder.empty(), "'", path,
             "' is compressed by gzip, and HOME names no place for its contents; "
             "decompress it first");
  const std::string contents = concat(folder, '/', name_of_contents(path), kEnding);
  std::error_code ignored;
  if (std::filesystem::exists(contents, ignored)) return contents;
  std::filesystem::create_directories(folder, ignored);
  AtomicFile file(contents);
  decompress(
      path, [&](std::string_view piece) { file.write(piece); }, options);
  file.commit();
  return contents;
}

}  // namespace keel
