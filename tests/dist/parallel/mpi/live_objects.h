#pragma once
// Counts the objects that operator new has made and operator delete has not freed yet, in the whole program. MPI is
// written in C, so its memory is not counted.

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace keel::testing {
inline std::atomic<std::int64_t> live_objects = 0;

inline void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  ++live_objects;
  return memory;
}
inline void release(void* memory) noexcept {
  if (memory != nullptr) --live_objects;
  std::free(memory);
}
}  // namespace keel::testing

// One source file of a program may include this.
void* operator new(std::size_t bytes) { return keel::testing::counted(std::malloc(bytes == 0 ? 1 : bytes)); }
void* operator new(std::size_t bytes, std::align_val_t align) {
  const auto unit = static_cast<std::size_t>(align);
  return keel::testing::counted(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}
void operator delete(void* memory) noexcept { keel::testing::release(memory); }
void operator delete(void* memory, std::size_t) noexcept { keel::testing::release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { keel::testing::release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { keel::testing::release(memory); }
