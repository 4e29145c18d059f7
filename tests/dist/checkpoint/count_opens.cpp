#include "tests/dist/checkpoint/count_opens.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>

namespace {

std::atomic<std::int64_t> opened = 0, bytes = 0;

int counted_open(int folder, const char* path, int flags, mode_t mode) {
  ++opened;
  return static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode));
}

ssize_t counted_pread(int file, void* to, std::size_t count, off_t offset) {
  const auto done = static_cast<ssize_t>(::syscall(SYS_pread64, file, to, count, offset));
  if (done > 0) bytes += done;
  return done;
}

}  // namespace

// In the place of the C library's, by the name that a linker sees: its headers may have given open() another one.
#define KEEL_COUNTED(name, linked, ...)                             \
  extern "C" int name(__VA_ARGS__, int flags, ...) __asm__(linked); \
  extern "C" int name(__VA_ARGS__, int flags, ...)
#define KEEL_MODE(mode)                            \
  mode_t mode = 0;                                 \
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {      \
    std::va_list more;                             \
    va_start(more, flags);                         \
    mode = static_cast<mode_t>(va_arg(more, int)); \
    va_end(more);                                  \
  }

KEEL_COUNTED(keel_counted_open, "open", const char* path) {
  KEEL_MODE(mode)
  return counted_open(AT_FDCWD, path, flags, mode);
}
KEEL_COUNTED(keel_counted_open64, "open64", const char* path) {
  KEEL_MODE(mode)
  return counted_open(AT_FDCWD, path, flags, mode);
}
KEEL_COUNTED(keel_counted_openat, "openat", int folder, const char* path) {
  KEEL_MODE(mode)
  return counted_open(folder, path, flags, mode);
}
KEEL_COUNTED(keel_counted_openat64, "openat64", int folder, const char* path) {
  KEEL_MODE(mode)
  return counted_open(folder, path, flags, mode);
}

extern "C" ssize_t keel_counted_pread(int file, void* to, std::size_t count, off_t offset) __asm__("pread");
extern "C" ssize_t keel_counted_pread(int file, void* to, std::size_t count, off_t offset) {
  return counted_pread(file, to, count, offset);
}
extern "C" ssize_t keel_counted_pread64(int file, void* to, std::size_t count, off_t offset) __asm__("pread64");
extern "C" ssize_t keel_counted_pread64(int file, void* to, std::size_t count, off_t offset) {
  return counted_pread(file, to, count, offset);
}

namespace keel::testing {

std::int64_t opened_files() { return opened; }
std::int64_t bytes_read() { return bytes; }

}  // namespace keel::testing
