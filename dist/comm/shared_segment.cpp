#include "keel/dist/comm/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>

namespace keel {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t rounded(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

// A file without a name: no mount limits it, and no crash leaves it behind. Others open it among its owner's files.
std::shared_ptr<SharedSegment> SharedSegment::create(std::size_t bytes) {
  std::shared_ptr<SharedSegment> made(new SharedSegment);
  made->file_ = ::memfd_create("keel", MFD_CLOEXEC);
  if (made->file_ < 0 || ::ftruncate(made->file_, static_cast<off_t>(rounded(bytes) + kPage)) != 0 || !made->map(bytes))
    return nullptr;
  std::random_device random;
  made->name_ = {::getpid(), made->file_, (std::uint64_t{random()} << 32) | random()};
  std::memcpy(made->memory_ + rounded(bytes), &made->name_.key, sizeof(made->name_.key));
  return made;
}

std::shared_ptr<SharedSegment> SharedSegment::open(const Name& name, std::size_t bytes) {
  if (name.file < 0) return nullptr;
  std::shared_ptr<SharedSegment> found(new SharedSegment);
  const std::string path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.file);
  found->file_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  // Another container's process of that number may have any file there.
  if (found->file_ < 0 || ::lseek(found->file_, 0, SEEK_END) != static_cast<off_t>(rounded(bytes) + kPage))
    return nullptr;
  std::uint64_t key = 0;
  if (::pread(found->file_, &key, sizeof(key), static_cast<off_t>(rounded(bytes))) != sizeof(key) || key != name.key)
    return nullptr;
  if (!found->map(bytes)) return nullptr;
  found->hide();
  return found;
}

bool SharedSegment::map(std::size_t bytes) {
  mapped_ = rounded(bytes) + kPage;
  void* const memory = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED) return false;
  memory_ = static_cast<std::byte*>(memory);
  return true;
}

void SharedSegment::hide() {
  if (file_ >= 0) ::close(file_);
  file_ = -1;
}

SharedSegment::~SharedSegment() {
  if (memory_ != nullptr) ::munmap(memory_, mapped_);
  hide();
}

}  // namespace keel
