#include "keel/runtime/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "keel/runtime/error.h"

namespace keel {
namespace {

std::string own_name() {
  std::array<char, 256> host = {};
  ::gethostname(host.data(), host.size() - 1);
  return concat("process ", ::getpid(), " on host ", host.data());
}

// The first line; it may be that the holder has not written it yet.
std::string line_of(int descriptor) {
  std::array<char, 512> text = {};
  const ssize_t count = ::pread(descriptor, text.data(), text.size(), 0);
  const std::string line(text.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  return line.empty() ? "another process" : line.substr(0, line.find('\n'));
}

bool is_file_at(const std::string& path, int descriptor) {
  struct stat named = {}, open = {};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(descriptor, &open) == 0 && named.st_dev == open.st_dev &&
         named.st_ino == open.st_ino;
}

int try_to_lock(int descriptor) {
  int result = -1;
  do result = ::flock(descriptor, LOCK_EX | LOCK_NB);
  while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

}  // namespace

FileLock::FileLock(std::string path) : path_(std::move(path)) {
  for (;;) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor_ < 0)
      throw Error(concat("cannot write '", path_, "': ", std::generic_category().message(errno)), ErrorKind::io);
    const int code = try_to_lock(descriptor_);
    state_ = code == 0 ? State::held : code == EWOULDBLOCK ? State::taken : State::unsupported;
    // A holder that ended in the meantime has removed its file.
    if (state_ != State::held || is_file_at(path_, descriptor_)) break;
    ::close(descriptor_);
  }
  if (state_ == State::taken) {
    holder_ = line_of(descriptor_);
    ::close(std::exchange(descriptor_, -1));
    return;
  }
  const std::string name = own_name() + "\n";
  // The lock holds without its name, too.
  if (::ftruncate(descriptor_, 0) == 0) static_cast<void>(!::pwrite(descriptor_, name.data(), name.size(), 0));
}

FileLock::~FileLock() {
  if (descriptor_ < 0) return;
  if (is_in_place()) ::unlink(path_.c_str());
  ::close(descriptor_);
}

bool FileLock::is_in_place() const { return descriptor_ >= 0 && is_file_at(path_, descriptor_); }

}  // namespace keel
