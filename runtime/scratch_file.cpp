#include "keel/runtime/scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

constexpr std::size_t kSector = 4096;

std::string system_reason(int code) { return std::generic_category().message(code); }

class UnnamedFile : public ScratchFile {
 public:
  explicit UnnamedFile(const std::string& folder) : folder_(folder) {
    std::error_code failed;
    std::filesystem::create_directories(folder_, failed);
    if (failed) fail("make", failed.message());
    descriptor_ = ::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    if (descriptor_ < 0) open_and_unlink();
    alignment_ = goes_past_the_cache() ? kSector : 1;
  }
  ~UnnamedFile() override {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  const std::string& folder() const override { return folder_; }
  std::size_t alignment() const override { return alignment_; }

  void reserve(std::uint64_t offset, std::uint64_t bytes) override {
    if (bytes == 0) return;
    const int code = ::posix_fallocate(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    if (code != 0) fail(concat("reserve ", bytes, " bytes from ", offset, " on"), system_reason(code));
  }
  void read(std::uint64_t offset, std::span<std::byte> bytes) const override {
    move("read", offset, bytes.size(), [&](std::size_t done) {
      return ::pread(descriptor_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    });
  }
  void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    move("write", offset, bytes.size(), [&](std::size_t done) {
      return ::pwrite(descriptor_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    });
  }

 private:
  // Where the file system has no files that never had a name.
  void open_and_unlink() {
    std::string name = folder_ + "/keel-XXXXXX";
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) fail("make", system_reason(errno));
    ::unlink(name.c_str());
  }
  // Some file systems take the flag and refuse to write, so one sector is written.
  bool goes_past_the_cache() const {
    const int flags = ::fcntl(descriptor_, F_GETFL);
    if (flags < 0 || ::fcntl(descriptor_, F_SETFL, flags | O_DIRECT) != 0) return false;
    const std::unique_ptr<void, decltype(&std::free)> sector(std::aligned_alloc(kSector, kSector), &std::free);
    std::memset(sector.get(), 0, kSector);
    if (::pwrite(descriptor_, sector.get(), kSector, 0) == static_cast<ssize_t>(kSector)) return true;
    ::fcntl(descriptor_, F_SETFL, flags);
    return false;
  }

  template <class Call>
  void move(std::string_view action, std::uint64_t offset, std::size_t bytes, const Call& call) const {
    const auto what = [&] { return concat(action, ' ', bytes, " bytes from ", offset, " on"); };
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t moved = call(done);
      if (moved < 0 && errno == EINTR) continue;
      if (moved < 0) fail(what(), system_reason(errno));
      done += static_cast<std::size_t>(moved);
      const bool goes_on = moved > 0 && done % alignment_ == 0;
      if (done < bytes && !goes_on) fail(what(), concat("only ", done, " bytes were moved"));
    }
  }
  [[noreturn]] void fail(std::string_view action, std::string_view reason) const {
    throw Error(concat("cannot ", action, " in a file without a name in '", printable(folder_), "': ", reason),
                ErrorKind::io);
  }

  std::string folder_;
  int descriptor_ = -1;
  std::size_t alignment_ = 1;
};

}  // namespace

std::unique_ptr<ScratchFile> make_scratch_file(const std::string& folder) {
  KEEL_CHECK(!folder.empty(), "a file of numbers needs a folder");
  return std::make_unique<UnnamedFile>(folder);
}

}  // namespace keel
