#include "keel/runtime/partial_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

constexpr std::string_view kPartial = ".partial";

[[noreturn]] void throw_partial(const std::string& path, int code) {
  throw Error(concat("cannot write '", printable(path), "': ", std::generic_category().message(code)), ErrorKind::io);
}

}  // namespace

std::string PartialFile::partial_of(const std::string& path) { return concat(path, kPartial); }
bool PartialFile::is_partial(std::string_view path) { return path.ends_with(kPartial); }

PartialFile::PartialFile(std::string path) : path_(std::move(path)) {
  const std::string partial = partial_of(path_);
  descriptor_ = ::open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  struct stat status = {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) throw_partial(partial, errno);
  size_ = static_cast<std::uint64_t>(status.st_size);
}

PartialFile::~PartialFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void PartialFile::cut(std::uint64_t bytes) {
  KEEL_CHECK(bytes <= size_, "'", partial_of(path_), "' has ", size_, " bytes, fewer than the ", bytes, " to keep");
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) throw_partial(path_, errno);
  size_ = bytes;
}

void PartialFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw_partial(path_, written < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

void PartialFile::write(std::span<const std::byte> bytes) {
  write_at(size_, bytes);
  size_ += bytes.size();
}

void PartialFile::rewrite(std::uint64_t offset, std::span<const std::byte> bytes) {
  KEEL_CHECK(offset <= size_ && bytes.size() <= size_ - offset, "'", path_, "' has ", size_, " bytes; ", bytes.size(),
             " bytes at ", offset, " reach past them");
  write_at(offset, bytes);
}

void PartialFile::flush() {
  if (::fdatasync(descriptor_) != 0) throw_partial(path_, errno);
}

void PartialFile::commit() {
  if (::fsync(descriptor_) != 0) throw_partial(path_, errno);
  if (::rename(partial_of(path_).c_str(), path_.c_str()) != 0) throw_partial(path_, errno);
  ::close(std::exchange(descriptor_, -1));
  const std::filesystem::path parent = std::filesystem::path(path_).parent_path();
  const int folder = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool is_durable = folder >= 0 && ::fsync(folder) == 0;
  const int code = errno;
  if (folder >= 0) ::close(folder);
  if (!is_durable) throw_partial(path_, code);
}

void PartialFile::discard() {
  if (descriptor_ < 0) return;
  ::close(std::exchange(descriptor_, -1));
  ::unlink(partial_of(path_).c_str());
}

}  // namespace keel
