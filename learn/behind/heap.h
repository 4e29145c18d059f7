#pragma once
// Counts what is allocated while an exercise runs. Of each program one file includes this: it replaces
// operator new.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace learn {

struct Heap {
  std::int64_t now = 0, peak = 0;  // bytes
};
inline thread_local Heap heap;

constexpr std::size_t kHeapHeader = alignof(std::max_align_t);

inline void* heap_new(std::size_t bytes) {
  auto* block = static_cast<char*>(std::malloc(bytes + kHeapHeader));
  if (block == nullptr) throw std::bad_alloc();
  *reinterpret_cast<std::size_t*>(block) = bytes;
  heap.now += static_cast<std::int64_t>(bytes);
  heap.peak = std::max(heap.peak, heap.now);
  return block + kHeapHeader;
}

inline void heap_delete(void* pointer) {
  if (pointer == nullptr) return;
  char* block = static_cast<char*>(pointer) - kHeapHeader;
  heap.now -= static_cast<std::int64_t>(*reinterpret_cast<std::size_t*>(block));
  std::free(block);
}

// The most bytes that `f` has allocated at a time by new, and so by std::vector.
template <class F>
std::int64_t peak_bytes(const F& f) {
  const std::int64_t before = heap.now;
  heap.peak = before;
  f();
  return heap.peak - before;
}

}  // namespace learn

void* operator new(std::size_t bytes) { return learn::heap_new(bytes); }
void* operator new[](std::size_t bytes) { return learn::heap_new(bytes); }
void operator delete(void* pointer) noexcept { learn::heap_delete(pointer); }
void operator delete[](void* pointer) noexcept { learn::heap_delete(pointer); }
void operator delete(void* pointer, std::size_t) noexcept { learn::heap_delete(pointer); }
void operator delete[](void* pointer, std::size_t) noexcept { learn::heap_delete(pointer); }
