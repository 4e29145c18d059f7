#include "keel/dist/checkpoint/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>

#include "keel/runtime/error.h"

namespace keel {
namespace {

// What is hashed while it is in the cache.
constexpr std::size_t kHashedAtOnce = std::size_t{256} << 10;

[[noreturn]] void throw_full(const std::string& path, int code) {
  throw Error(concat("cannot write '", path, "': ", std::generic_category().message(code)), ErrorKind::io);
}

class MemoryTarget : public SectionTarget {
 public:
  explicit MemoryTarget(std::span<std::byte> bytes) : left_(bytes) {}
  void write(std::span<const std::byte> bytes, Xxh3& hash) override {
    for (std::size_t done = 0; done < bytes.size(); done += kHashedAtOnce) {
      const auto piece = bytes.subspan(done, std::min(kHashedAtOnce, bytes.size() - done));
      std::memcpy(left_.data() + done, piece.data(), piece.size());
      hash.add(piece);
    }
    left_ = left_.subspan(bytes.size());
  }
  void commit() override {}

 private:
  std::span<std::byte> left_;
};

}  // namespace

MemoryFile::MemoryFile(const std::string& path, std::uint64_t bytes) : size_(bytes) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) throw_full(path, errno);
  struct ::stat found = {};
  int code = ::ftruncate(file, static_cast<off_t>(bytes)) == 0 && ::fstat(file, &found) == 0 ? 0 : errno;
  // Without its pages, a full memory would end the process by SIGBUS.
  if (code == 0) code = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  void* memory = MAP_FAILED;
  if (code == 0) memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (code == 0 && memory == MAP_FAILED) code = errno;
  ::close(file);
  if (code != 0) throw_full(path, code);
  memory_ = static_cast<std::byte*>(memory);
  device_ = found.st_dev;
  number_ = found.st_ino;
}

MemoryFile::~MemoryFile() { ::munmap(memory_, size_); }

bool MemoryFile::is_at(const std::string& path) const {
  struct ::stat found = {};
  return ::lstat(path.c_str(), &found) == 0 && found.st_dev == device_ && found.st_ino == number_;
}

MemoryFile& MemoryFiles::open(const std::string& folder, const std::string& name, std::uint64_t bytes) {
  const std::string path = concat(folder, '/', name);
  std::unique_ptr<MemoryFile>& file = files_[name];
  if (!file || file->bytes().size() != bytes || !file->is_at(path)) {
    file.reset();
    file = std::make_unique<MemoryFile>(path, bytes);
  }
  return *file;
}

Manifest MemoryFiles::write(const std::string& folder, const Section& section) {
  const std::atomic<bool> is_never_cancelled = false;
  return write_section(
      section,
      [&](std::uint64_t bytes) { return std::make_unique<MemoryTarget>(open(folder, section.file, bytes).bytes()); },
      is_never_cancelled);
}

}  // namespace keel
