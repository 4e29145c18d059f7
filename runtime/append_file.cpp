#include "keel/runtime/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "keel/runtime/error.h"

namespace keel {
namespace {

[[noreturn]] void throw_unwritten(const std::string& path, int code) {
  throw Error(concat("cannot write '", path, "': ", std::generic_category().message(code)), ErrorKind::io);
}

}  // namespace

AppendFile::AppendFile(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_unwritten(path_, errno);
}

AppendFile::~AppendFile() { ::close(descriptor_); }

void AppendFile::write(std::string_view piece) {
  ssize_t written = -1;
  do written = ::write(descriptor_, piece.data(), piece.size());
  while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(piece.size())) return;
  const int code = written < 0 ? errno : ENOSPC;
  const off_t end = ::lseek(descriptor_, 0, SEEK_CUR);
  if (written > 0 && ::ftruncate(descriptor_, end - written) != 0) throw_unwritten(path_, errno);
  throw_unwritten(path_, code);
}

}  // namespace keel
