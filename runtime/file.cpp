#include "keel/runtime/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/runtime/remove_folder.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".tmp";
constexpr std::size_t kNonceDigits = 16;
constexpr std::size_t kBufferBytes = 1 << 16, kLargePiece = 1 << 20;
// The system takes at most about 2 GiB a call.
constexpr std::size_t kCallBytes = 1 << 30;

[[noreturn]] void throw_io(std::string_view action, std::string_view path, std::string_view reason) {
  throw Error(concat("cannot ", action, " '", printable(path), "': ", reason), ErrorKind::io);
}

std::string reason_of(int code) { return std::generic_category().message(code); }

// An open descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : value_(::open(path.c_str(), flags | O_CLOEXEC)) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

// What a pipe may give. A device such as /dev/zero has no end.
constexpr std::size_t kLongestStream = std::size_t{1} << 26;

// A FIFO without a writer is refused like other files that are not regular, and not waited for.
constexpr int kToRead = O_RDONLY | O_NONBLOCK;

std::size_t size_of_regular(const Descriptor& file, const std::string& path) {
  struct stat status = {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) throw_io("read", path, reason_of(errno));
  if (S_ISDIR(status.st_mode)) throw_io("read", path, "it is a folder; name a file");
  if (!S_ISREG(status.st_mode)) throw_io("read", path, "it is not a regular file");
  return static_cast<std::size_t>(status.st_size);
}

// `size`: of a file; without one it is a pipe or the like.
std::string read_to_end(const Descriptor& file, const std::string& path, std::optional<std::size_t> size) {
  std::string text;
  if (size) text.reserve(*size + 1);
  for (;;) {
    if (!size && text.size() > kLongestStream)
      throw_io("read", path, concat("it is no file, and has more than ", kLongestStream, " bytes"));
    const std::size_t begin = text.size();
    text.resize(std::max(text.capacity(), begin + kBufferBytes));
    const ssize_t count = ::read(file.get(), text.data() + begin, text.size() - begin);
    text.resize(begin + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) return text;
    if (count < 0 && errno != EINTR) throw_io("read", path, reason_of(errno));
  }
}

// An empty path would open nothing, or the current folder.
std::string checked(std::string path) {
  if (path.empty()) throw Error("a file name is missing: the path is empty", ErrorKind::io);
  return path;
}

fs::path without_trailing_slash(const std::string& path) {
  fs::path result(path);
  while (!result.has_filename() && result.has_parent_path() && result != result.root_path())
    result = result.parent_path();
  return result;
}

fs::path folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

void sync_path(const std::string& path, int flags) {
  const Descriptor file(path, O_RDONLY | flags);
  if (file.get() < 0 || ::fsync(file.get()) != 0) throw_io("flush", path, reason_of(errno));
}

// Files before the folders that hold them, so that no durable name points at missing contents.
void sync_tree(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_symlink()) continue;
    if (entry.is_directory()) sync_tree(entry.path());
    else sync_path(entry.path().string(), 0);
  }
  sync_path(folder.string(), O_DIRECTORY);
}

// Writes all bytes at `offset`; returns 0 or the error number.
int write_fully(int descriptor, std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kCallBytes);
    const ssize_t written = ::pwrite(descriptor, bytes.data(), count, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return ENOSPC;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return 0;
}

// 16 hexadecimal digits that nobody has drawn before.
std::string nonce() {
  std::random_device random;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (int word = 0; word < 2; ++word)
    for (std::uint32_t bits = random(), i = 0; i < kNonceDigits / 2; ++i, bits >>= 4) text += kDigits[bits % 16];
  return text;
}

// Renames a folder to `to`; what stood there, if it may be replaced, ends up as `replaced`. Returns 0 or
// the error number; EINVAL or ENOSYS where the file system lacks these flags.
int rename_in_one_step(const std::string& from, const std::string& to, IfExists if_exists, std::string& replaced) {
  // rename() alone would silently replace an empty folder.
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EEXIST || if_exists == IfExists::refuse) return errno;
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) return errno;
  replaced = from;
  return 0;
}

int rename_in_two_steps(const std::string& from, const std::string& to, IfExists if_exists, std::string& replaced) {
  std::error_code ignored;
  const bool exists = fs::exists(fs::symlink_status(to, ignored));
  if (exists && if_exists == IfExists::refuse) return EEXIST;
  const std::string aside = to + AtomicFolder::kReplaced;
  fs::remove_all(aside, ignored);
  if (exists && ::rename(to.c_str(), aside.c_str()) != 0) return errno;
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int code = errno;
    if (exists) ::rename(aside.c_str(), to.c_str());
    return code;
  }
  if (exists) replaced = aside;
  return 0;
}

}  // namespace

MappedFile::MappedFile(std::string path, Mapping mapping) : path_(checked(std::move(path))), mapping_(mapping) {
  const Descriptor file(path_, kToRead);
  size_ = size_of_regular(file, path_);
  if (size_ == 0) return;
  const bool writable = mapping == Mapping::copy_on_write;
  void* memory = ::mmap(nullptr, size_, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                        MAP_PRIVATE | (writable ? MAP_NORESERVE : 0), file.get(), 0);
  if (memory == MAP_FAILED) throw_io("map", path_, reason_of(errno));
  memory_ = static_cast<std::byte*>(memory);
}

MappedFile::~MappedFile() {
  if (memory_ != nullptr) ::munmap(memory_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      memory_(std::exchange(other.memory_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapping_(other.mapping_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  std::swap(mapping_, other.mapping_);
  return *this;
}

std::byte* MappedFile::writable() const {
  KEEL_CHECK(mapping_ == Mapping::copy_on_write, "'", path_, "' is mapped read-only; map it copy_on_write to write");
  return memory_;
}

InputFile::InputFile(std::string path) : path_(checked(std::move(path))) {
  Descriptor file(path_, kToRead);
  size_ = size_of_regular(file, path_);
  descriptor_ = file.release();
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const std::size_t wanted = std::min(bytes.size(), kCallBytes);
    const ssize_t count = ::pread(descriptor_, bytes.data(), wanted, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_io("read", path_, reason_of(errno));
    if (count == 0)
      throw_io("read", path_,
               offset < size_ ? concat("it has been cut short to ", offset, " bytes or fewer; it had ", size_)
                              : concat("it has ", size_, " bytes, and one at ", offset, " was wanted"));
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

std::string temporary_beside(const std::string& path) {
  static std::atomic<unsigned> counter = 0;
  const fs::path target(path);
  const std::string name =
      concat(".", target.filename().string(), ".", ::getpid(), "-", counter.fetch_add(1), kTemporary);
  return (target.parent_path() / name).string();
}

void remove_unfinished_files(const std::string& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with('.') || !name.ends_with(kTemporary)) continue;
    name.resize(name.size() - kTemporary.size());
    const std::size_t numbers = name.find_last_of('.') + 1;  // "17-0"
    if (numbers == 1 || numbers == name.size() || name.find_first_not_of("0123456789-", numbers) != std::string::npos)
      continue;
    fs::remove(entry.path(), ignored);
  }
}

AtomicFile::AtomicFile(std::string path) : path_(checked(std::move(path))) {
  if (fs::path(path_).filename().empty()) throw_io("write", path_, "it names a folder; name a file");
  std::error_code ignored;
  if (fs::is_directory(path_, ignored)) throw_io("write", path_, "it is a folder; name a file");
  // A name may be left over from another program with this process number.
  do {
    temporary_ = temporary_beside(path_);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ >= 0) return;
  const int code = errno;
  if (code == ENOENT) throw_io("write", path_, concat("the folder ", folder_of(path_), " does not exist"));
  throw_io("write", path_, reason_of(code));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::fail(int code) const {
  throw_io("write", path_, concat(reason_of(code), " (the file is as it was before)"));
}

void AtomicFile::flush() {
  const std::uint64_t begin = size_ - buffer_.size();
  if (const int code = write_fully(descriptor_, std::as_bytes(std::span(buffer_)), begin)) fail(code);
  buffer_.clear();
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  KEEL_CHECK(descriptor_ >= 0, "'", path_, "' is committed already; nothing more can be written");
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() < kBufferBytes) buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  else if (const int code = write_fully(descriptor_, bytes, size_)) fail(code);
  // The disk begins with large pieces at once, so that commit() waits for less.
  if (bytes.size() >= kLargePiece)
    ::sync_file_range(descriptor_, static_cast<off_t>(size_), static_cast<off_t>(bytes.size()), SYNC_FILE_RANGE_WRITE);
  size_ += bytes.size();
}

void AtomicFile::rewrite(std::uint64_t offset, std::span<const std::byte> bytes) {
  KEEL_CHECK(descriptor_ >= 0, "'", path_, "' is committed already; nothing more can be written");
  KEEL_CHECK(offset <= size_ && bytes.size() <= size_ - offset, "'", path_, "' has ", size_, " bytes; ", bytes.size(),
             " bytes at ", offset, " reach past them");
  flush();
  if (const int code = write_fully(descriptor_, bytes, offset)) fail(code);
}

void AtomicFile::commit() {
  KEEL_CHECK(descriptor_ >= 0, "'", path_, "' is committed already");
  flush();
  if (::fsync(descriptor_) != 0) fail(errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
  ::close(descriptor_);
  descriptor_ = -1;
  sync_path(folder_of(path_).string(), O_DIRECTORY);
}

std::string AtomicFolder::target_of(const std::string& unfinished) {
  std::string_view name = unfinished;
  if (!name.ends_with(kTemporary)) return {};
  name.remove_suffix(kTemporary.size());
  // "step-10.tmp" is of keel before 0.2.
  if (name.size() > kNonceDigits && name[name.size() - kNonceDigits - 1] == '.' &&
      name.find_last_not_of("0123456789abcdef") == name.size() - kNonceDigits - 1)
    name.remove_suffix(kNonceDigits + 1);
  return std::string(name);
}

AtomicFolder::AtomicFolder(std::string path, IfExists if_exists)
    : path_(without_trailing_slash(checked(std::move(path))).string()),
      temporary_(concat(path_, '.', nonce(), kTemporary)),
      if_exists_(if_exists) {
  std::error_code error;
  if (if_exists == IfExists::refuse && fs::exists(fs::symlink_status(path_, error)))
    throw_io("create folder", path_, "it exists already; remove it or choose another name");
  const fs::path parent = folder_of(path_);
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, error))
    if (fs::path(target_of(entry.path().string())) == parent / fs::path(path_).filename())
      fs::remove_all(entry.path(), error);
  fs::create_directory(temporary_, error);
  if (error == std::errc::no_such_file_or_directory)
    throw_io("create folder", path_, concat("the folder ", folder_of(path_), " does not exist"));
  if (error) throw_io("create folder", path_, error.message());
}

AtomicFolder::~AtomicFolder() {
  if (!committed_) remove_folder(temporary_);
}

void AtomicFolder::commit(bool flushed) {
  KEEL_CHECK(!committed_, "folder '", path_, "' is committed already");
  try {
    if (flushed) sync_path(temporary_, O_DIRECTORY);
    else sync_tree(temporary_);
  } catch (const fs::filesystem_error& error) { throw_io("create folder", path_, error.code().message()); }
  std::string replaced;
  int code = rename_in_one_step(temporary_, path_, if_exists_, replaced);
  if (code == EINVAL || code == ENOSYS) code = rename_in_two_steps(temporary_, path_, if_exists_, replaced);
  if (code != 0) throw_io("create folder", path_, reason_of(code));
  committed_ = true;
  sync_path(folder_of(path_).string(), O_DIRECTORY);
  std::error_code ignored;
  if (!replaced.empty()) fs::remove_all(replaced, ignored);
}

std::string with_home_folder(std::string_view path) {
  if (path != "~" && !path.starts_with("~/")) return std::string(path);
  const char* home = std::getenv("HOME");
  KEEL_CHECK(home != nullptr && *home != '\0', "'", path, "' begins with ~, and HOME is not set; write the folder out");
  return concat(home, path.substr(1));
}

std::string read_text_file(const std::string& path) {
  const Descriptor file(checked(path), kToRead);
  return read_to_end(file, path, size_of_regular(file, path));
}

std::string read_text(const std::string& path) {
  const Descriptor file(checked(path), O_RDONLY);
  if (file.get() < 0) throw_io("read", path, reason_of(errno));
  struct stat status = {};
  const bool is_file = ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode);
  return read_to_end(file, path, is_file ? std::optional(static_cast<std::size_t>(status.st_size)) : std::nullopt);
}

void write_text_file(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace keel
