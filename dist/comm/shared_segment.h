#pragma once
// Memory that several processes of one machine see.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "keel/runtime/language.h"

namespace keel {

// Memory without a file name: it goes away with the last process that has it, however that process ends.
class SharedSegment {
 public:
  // How other processes find it. A process in another container may find nothing there, or another segment under the
  // same numbers; the key tells them apart.
  struct Name {
    std::int64_t process = 0, file = -1;
    std::uint64_t key = 0;
  };

  // Makes a segment of zeros; null where the system gives none.
  static std::shared_ptr<SharedSegment> create(std::size_t bytes);
  // Opens another process's segment; null where this one may not see it.
  static std::shared_ptr<SharedSegment> open(const Name& name, std::size_t bytes);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  std::byte* memory() const { return memory_; }  // at a multiple of a page
  const Name& name() const { return name_; }
  // From now on nobody else can open it.
  void hide();

 private:
  SharedSegment() = default;
  bool map(std::size_t bytes);

  Name name_;
  std::byte* memory_ = nullptr;
  std::size_t mapped_ = 0;  // bytes: the caller's, and a page with the key
  int file_ = -1;
};

}  // namespace keel
