#pragma once
// Memory that several processes of one machine see.

#include <cstddef>
#include <cstdint>
#include <memory>

namespace keel {

// Goes away with the last process that has it, however that ends.
class SharedSegment {
 public:
  // How other processes find it. Some, in other containers, may find none, or another one's of the same numbers: hence
  // the key.
  struct Name {
    std::int64_t process = 0, file = -1;
    std::uint64_t key = 0;
  };

  // Zeros. Null where the system gives none.
  static std::shared_ptr<SharedSegment> create(std::size_t bytes);
  // Another process's; null where this one may not see it.
  static std::shared_ptr<SharedSegment> open(const Name& name, std::size_t bytes);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  std::byte* memory() const { return memory_; }  // at a multiple of a page
  const Name& name() const { return name_; }
  // Nobody else can open it any more.
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
