// A file system that lies. Preloaded into a program, this library makes its calls about files fail, fall short or come
// late, or ends or stops the program there.
//
// KEEL_LIES holds the lies, one a line: RANK CALL NTH WHAT PATH
//   RANK   of KEEL_RANK or OMPI_COMM_WORLD_RANK; a program with neither is rank 0
//   CALL   create (open that may make a file), open, write, sync, rename, link, unlink, mkdir, read, look (stat);
//          change: any that changes the file system; see: open or look
//   NTH    3: the third such call on such a path; 3+: from the third on
//   WHAT   fail:ERRNO          does nothing
//          done:ERRNO          does it, and says that it failed
//          short:BYTES         transfers no more at a time
//          full:BYTES          takes no more in all, then says ENOSPC
//          hide:MILLISECONDS   says ENOENT for that long after the first such call
//          kill, kill-midway (half of a write), kill-after, stop, stop-after: SIGKILL or SIGSTOP
//   PATH   a pattern as of a shell, in which * may be slashes; of what a rename or a link makes
// KEEL_LIES_LOG names a file for a line about each call that changes something ("0 write PATH") and each lie that was
// told ("0 lie PROCESS CALL PATH"). No call waits for the disk: what is killed here is a program, not a machine.

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace {

using Word = std::array<char, 32>;
using Text = std::array<char, PATH_MAX>;

struct Lie {
  long rank = 0, nth = 0, value = 0;
  bool goes_on = false;
  Word call{}, what{};
  Text path{};
  std::atomic<long> calls{0}, bytes{0}, since{0};
};

constexpr std::size_t kMostLies = 16;
std::array<Lie, kMostLies> lies;
std::size_t lie_count = 0;
long own_rank = 0;
const char* log_path = nullptr;

long milliseconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

[[noreturn]] void refuse(const char* line) {
  std::fprintf(stderr, "KEEL_LIES: '%s' is no lie\n", line);
  std::abort();
}

void read_lie(const char* line) {
  if (lie_count == kMostLies) refuse(line);
  Lie& lie = lies[lie_count++];
  Word nth{};
  if (std::sscanf(line, "%ld %31s %31s %31s %4000s", &lie.rank, lie.call.data(), nth.data(), lie.what.data(),
                  lie.path.data()) != 5)
    refuse(line);
  lie.nth = std::atol(nth.data());
  lie.goes_on = std::strchr(nth.data(), '+') != nullptr;
  if (char* colon = std::strchr(lie.what.data(), ':')) {
    lie.value = std::atol(colon + 1);
    *colon = '\0';
  }
}

__attribute__((constructor)) void read_lies() {
  for (const char* name : {"KEEL_RANK", "OMPI_COMM_WORLD_RANK"})
    if (const char* value = std::getenv(name)) own_rank = std::atol(value);
  log_path = std::getenv("KEEL_LIES_LOG");
  const char* text = std::getenv("KEEL_LIES");
  while (text != nullptr && *text != '\0') {
    const char* end = std::strchr(text, '\n');
    const std::size_t length = end != nullptr ? static_cast<std::size_t>(end - text) : std::strlen(text);
    Text line{};
    std::memcpy(line.data(), text, std::min(length, line.size() - 1));
    if (length > 0) read_lie(line.data());
    text = end != nullptr ? end + 1 : nullptr;
  }
}

void log(const char* line) {
  if (log_path == nullptr) return;
  const long file = syscall(SYS_open, log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return;
  syscall(SYS_write, file, line, std::strlen(line));
  syscall(SYS_close, file);
}

// Where a descriptor leads, and what a name means beside it.
Text path_of(int descriptor) {
  Text link{}, path{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", descriptor);
  syscall(SYS_readlink, link.data(), path.data(), path.size() - 1);
  return path;
}
Text path_of(int folder, const char* name) {
  Text path{};
  if (folder == AT_FDCWD || name[0] == '/') std::snprintf(path.data(), path.size(), "%s", name);
  else std::snprintf(path.data(), path.size(), "%.2000s/%.2000s", path_of(folder).data(), name);
  return path;
}

bool is_one_of(const char* call, std::initializer_list<const char*> others) {
  return std::any_of(others.begin(), others.end(), [&](const char* other) { return std::strcmp(call, other) == 0; });
}
bool sees(const char* call) { return is_one_of(call, {"open", "look"}); }
bool changes(const char* call) { return !is_one_of(call, {"open", "look", "read"}); }

bool is(const Word& word, const char* other) { return std::strcmp(word.data(), other) == 0; }
bool is_about(const Lie& lie, const char* call) {
  return is(lie.call, call) || (is(lie.call, "change") && changes(call)) || (is(lie.call, "see") && sees(call));
}

// The lie to tell at this call, if any.
Lie* lie_at(const char* call, const Text& path) {
  Lie* found = nullptr;
  for (std::size_t i = 0; i < lie_count; ++i) {
    Lie& lie = lies[i];
    if (lie.rank != own_rank || !is_about(lie, call) || fnmatch(lie.path.data(), path.data(), 0) != 0) continue;
    const long count = ++lie.calls;
    if (found == nullptr && (count == lie.nth || (lie.goes_on && count > lie.nth))) found = &lie;
  }
  std::array<char, PATH_MAX + 64> line{};
  if (found != nullptr)
    std::snprintf(line.data(), line.size(), "%ld lie %d %s %s\n", own_rank, getpid(), call, path.data());
  else if (changes(call)) std::snprintf(line.data(), line.size(), "%ld %s %s\n", own_rank, call, path.data());
  if (line[0] != '\0') log(line.data());
  return found;
}

void send(int signal_number) { kill(getpid(), signal_number); }

// Does the call, `real(most)` with the most bytes that it may transfer, or tells the lie about it. `bytes`: that it
// asks for; 0 where it transfers none.
template <class Real>
auto answer(const char* call, const Text& path, std::size_t bytes, const Real& real) -> decltype(real(bytes)) {
  Lie* lie = lie_at(call, path);
  if (lie == nullptr) return real(bytes);
  const auto fail = [](long code) {
    errno = static_cast<int>(code);
    return static_cast<decltype(real(bytes))>(-1);
  };
  const auto most = static_cast<std::size_t>(lie->value);
  if (is(lie->what, "fail")) return fail(lie->value);
  if (is(lie->what, "done")) {
    real(bytes);
    return fail(lie->value);
  }
  if (is(lie->what, "short")) return real(std::min(bytes, most));
  if (is(lie->what, "full")) {
    const auto before = static_cast<std::size_t>(lie->bytes.fetch_add(static_cast<long>(bytes)));
    return before < most ? real(std::min(bytes, most - before)) : fail(ENOSPC);
  }
  if (is(lie->what, "hide")) {
    long never = 0;
    lie->since.compare_exchange_strong(never, milliseconds());
    return milliseconds() - lie->since < lie->value ? fail(ENOENT) : real(bytes);
  }
  if (is(lie->what, "kill")) send(SIGKILL);
  if (is(lie->what, "stop")) send(SIGSTOP);
  auto result = real(is(lie->what, "kill-midway") ? bytes / 2 : bytes);
  if (is(lie->what, "kill-midway") || is(lie->what, "kill-after")) send(SIGKILL);
  if (is(lie->what, "stop-after")) send(SIGSTOP);
  return result;
}

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

bool makes_file(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }
mode_t mode_in(int flags, va_list more) { return makes_file(flags) ? va_arg(more, mode_t) : 0; }
const char* name_of(int flags) { return makes_file(flags) ? "create" : "open"; }

}  // namespace

// The functions of the C library, by the names that keel and libstdc++ call.
#define KEEL_REAL(name) static const auto real = next<decltype(name)>(#name)

extern "C" {

#define KEEL_OPEN(name)                                                                                              \
  int name(const char* path, int flags, ...) {                                                                       \
    KEEL_REAL(name);                                                                                                 \
    va_list more;                                                                                                    \
    va_start(more, flags);                                                                                           \
    const mode_t mode = mode_in(flags, more);                                                                        \
    va_end(more);                                                                                                    \
    return answer(name_of(flags), path_of(AT_FDCWD, path), 0, [&](std::size_t) { return real(path, flags, mode); }); \
  }
KEEL_OPEN(open)
KEEL_OPEN(open64)

#define KEEL_OPENAT(name)                                                        \
  int name(int folder, const char* path, int flags, ...) {                       \
    KEEL_REAL(name);                                                             \
    va_list more;                                                                \
    va_start(more, flags);                                                       \
    const mode_t mode = mode_in(flags, more);                                    \
    va_end(more);                                                                \
    return answer(name_of(flags), path_of(folder, path), 0,                      \
                  [&](std::size_t) { return real(folder, path, flags, mode); }); \
  }
KEEL_OPENAT(openat)
KEEL_OPENAT(openat64)

ssize_t write(int file, const void* bytes, size_t count) {
  KEEL_REAL(write);
  return answer("write", path_of(file), count, [&](std::size_t most) { return real(file, bytes, most); });
}
ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  KEEL_REAL(pwrite);
  return answer("write", path_of(file), count, [&](std::size_t most) { return real(file, bytes, most, offset); });
}
ssize_t writev(int file, const iovec* pieces, int count) {
  KEEL_REAL(writev);
  return answer("write", path_of(file), 0, [&](std::size_t) { return real(file, pieces, count); });
}
ssize_t read(int file, void* bytes, size_t count) {
  KEEL_REAL(read);
  return answer("read", path_of(file), count, [&](std::size_t most) { return real(file, bytes, most); });
}
ssize_t pread(int file, void* bytes, size_t count, off_t offset) {
  KEEL_REAL(pread);
  return answer("read", path_of(file), count, [&](std::size_t most) { return real(file, bytes, most, offset); });
}

int posix_fallocate(int file, off_t offset, off_t count) {
  KEEL_REAL(posix_fallocate);
  const int done = answer("write", path_of(file), 0, [&](std::size_t) {
    errno = real(file, offset, count);
    return errno == 0 ? 0 : -1;
  });
  return done == 0 ? 0 : errno;
}

int fsync(int file) {
  return answer("sync", path_of(file), 0, [](std::size_t) { return 0; });
}
int fdatasync(int file) {
  return answer("sync", path_of(file), 0, [](std::size_t) { return 0; });
}
int sync_file_range(int, off64_t, off64_t, unsigned) { return 0; }

int rename(const char* from, const char* to) {
  KEEL_REAL(rename);
  return answer("rename", path_of(AT_FDCWD, to), 0, [&](std::size_t) { return real(from, to); });
}
int renameat2(int folder, const char* from, int other, const char* to, unsigned flags) {
  KEEL_REAL(renameat2);
  return answer("rename", path_of(other, to), 0, [&](std::size_t) { return real(folder, from, other, to, flags); });
}
int link(const char* from, const char* to) {
  KEEL_REAL(link);
  return answer("link", path_of(AT_FDCWD, to), 0, [&](std::size_t) { return real(from, to); });
}
int unlink(const char* path) {
  KEEL_REAL(unlink);
  return answer("unlink", path_of(AT_FDCWD, path), 0, [&](std::size_t) { return real(path); });
}
int remove(const char* path) {
  KEEL_REAL(remove);
  return answer("unlink", path_of(AT_FDCWD, path), 0, [&](std::size_t) { return real(path); });
}
int unlinkat(int folder, const char* path, int flags) {
  KEEL_REAL(unlinkat);
  return answer("unlink", path_of(folder, path), 0, [&](std::size_t) { return real(folder, path, flags); });
}
int mkdir(const char* path, mode_t mode) {
  KEEL_REAL(mkdir);
  return answer("mkdir", path_of(AT_FDCWD, path), 0, [&](std::size_t) { return real(path, mode); });
}
int stat(const char* path, struct stat* status) {
  static const auto real = next<int(const char*, struct stat*)>("stat");
  return answer("look", path_of(AT_FDCWD, path), 0, [&](std::size_t) { return real(path, status); });
}
int lstat(const char* path, struct stat* status) {
  static const auto real = next<int(const char*, struct stat*)>("lstat");
  return answer("look", path_of(AT_FDCWD, path), 0, [&](std::size_t) { return real(path, status); });
}

}  // extern "C"
