#pragma once
// Shared memory as kernels see it in the emulator: every access through [] is checked for bounds and races.

#include <cstddef>
#include <source_location>

#include "keel/runtime/emulation/grid.h"
#include "keel/runtime/error.h"

namespace keel::emulation {

inline constexpr std::size_t kDynamicSharedLimit = std::size_t{227} << 10;  // bytes of a block on sm_90

std::byte* shared_array(const void* key, std::size_t bytes);
std::size_t dynamic_shared_bytes();
// Notes an access of the running thread.
void touch_shared(const std::byte* address, std::size_t bytes, bool write, const std::source_location& where);
// Fails unless the bytes lie inside one shared array, at a multiple of `alignment`.
void check_shared(const std::byte* address, std::size_t bytes, std::size_t alignment,
                  const std::source_location& where);

// An index that knows the line it stands on.
struct SharedIndex {
  std::int64_t value;
  std::source_location where;
  template <class I>
  SharedIndex(I index,
              const std::source_location& where = std::source_location::current())  // NOLINT: implicit by intent
      : value(static_cast<std::int64_t>(index)), where(where) {}
};

// One element: reading and assigning it are the accesses that are noted.
template <class T>
class SharedElement {
 public:
  SharedElement(T* element, const std::source_location& where) : element_(element), where_(where) {}
  SharedElement(const SharedElement&) = default;
  operator T() const {  // NOLINT: stands for a T
    note(false);
    return *element_;
  }
  const SharedElement& operator=(T value) const {
    note(true);
    *element_ = value;
    return *this;
  }
  // Assigning an element to itself is noted as a read and a write. NOLINTNEXTLINE(bugprone-unhandled-self-assignment)
  const SharedElement& operator=(const SharedElement& other) const { return *this = static_cast<T>(other); }
  const SharedElement& operator+=(T value) const { return *this = static_cast<T>(static_cast<T>(*this) + value); }

 private:
  void note(bool write) const { touch_shared(reinterpret_cast<const std::byte*>(element_), sizeof(T), write, where_); }
  T* element_;
  std::source_location where_;
};

template <class T>
class SharedSpan {
 public:
  SharedSpan(std::byte* memory, std::size_t count) : elements_(reinterpret_cast<T*>(memory)), count_(count) {}
  SharedElement<T> operator[](SharedIndex index) const {
    if (index.value < 0 || index.value >= static_cast<std::int64_t>(count_))
      fail_thread(concat("element ", index.value, " of a shared array of ", count_), index.where);
    return {elements_ + index.value, index.where};
  }
  // For vector accesses: guarded at the ends only.
  T* data() const { return elements_; }

 private:
  T* elements_;
  std::size_t count_;
};

template <class T, class Key>
SharedSpan<T> shared_span(std::size_t count, Key) {
  static const char key = 0;
  return {shared_array(&key, count * sizeof(T)), count};
}

template <class T>
SharedSpan<T> dynamic_span() {
  const std::size_t bytes = dynamic_shared_bytes();
  return {bytes == 0 ? nullptr : shared_array(nullptr, bytes), bytes / sizeof(T)};
}

}  // namespace keel::emulation

// Declares an array of n elements that the threads of a block share. The lambda's type is the array's identity.
#define KEEL_SHARED(T, name, n) const auto name = ::keel::emulation::shared_span<T>((n), [] {})
