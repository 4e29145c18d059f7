#pragma once
// What a kernel of an exercise uses: the CUDA language in keel's emulator (docs/emulation.md), and memory
// that notices mistakes.
//
//   learn::Global<const float> x            an array in the device's memory: x[i], x.size()
//   LEARN_SHARED(float, partial, 256);      an array of 256 that the threads of a block share: partial[i]
//
// No element may be read before it is written. An element of the device's memory is written by one thread
// alone. A copy is `float v = x[i];`, since `auto v` would stand for the place itself. What breaks this, uses
// an index outside, or races is told with thread and line.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "keel/runtime/emulation/language.h"
#include "keel/runtime/emulation/shared.h"
#include "keel/runtime/half.h"
#include "learn/given/row.h"

namespace learn {

using keel::bf16;

// Memory that nobody has written is full of ones, which is a NaN that no arithmetic gives.
template <class T>
bool unwritten(const T& value) {
  unsigned char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  for (const unsigned char byte : bytes)
    if (byte != 0xff) return false;
  return true;
}

class GlobalArray;  // learn/behind/cuda.h

// What the running thread does to an element. They end the check where it must not.
void note_read(GlobalArray& array, const Index& index, bool unwritten);
void note_write(GlobalArray& array, const Index& index, bool changes);
[[noreturn]] void outside_global(const GlobalArray& array, const Index& index);
void note_shared(const void* address, const char* name, const std::source_location& where);
[[noreturn]] void outside_shared(const Index& index, std::size_t count, const char* name);
[[noreturn]] void unwritten_shared(const Index& index, const char* name);

// An element of an array: reading and assigning it are noted.
template <class T>
class GlobalElement {
  using Value = std::remove_const_t<T>;

 public:
  GlobalElement(T* place, GlobalArray* array, const Index& index)
      : place_(place), array_(array), index_(index) {}
  GlobalElement(const GlobalElement&) = default;
  operator Value() const {
    note_read(*array_, index_, unwritten(*place_));
    return *place_;
  }
  explicit operator float() const requires(std::is_same_v<Value, bf16>) {
    return static_cast<float>(static_cast<Value>(*this));
  }
  const GlobalElement& operator=(Value value) const {
    static_assert(!std::is_const_v<T>, "a kernel only reads this array");
    if constexpr (!std::is_const_v<T>) {
      note_write(*array_, index_, std::memcmp(place_, &value, sizeof value) != 0);
      *place_ = value;
    }
    return *this;
  }
  const GlobalElement& operator=(const GlobalElement& other) const {
    return *this = static_cast<Value>(other);
  }
  const GlobalElement& operator+=(Value value) const { return *this = static_cast<Value>(*this) + value; }
  const GlobalElement& operator-=(Value value) const { return *this = static_cast<Value>(*this) - value; }
  const GlobalElement& operator*=(Value value) const { return *this = static_cast<Value>(*this) * value; }

 private:
  T* place_;
  GlobalArray* array_;
  Index index_;
};

// An array in the device's memory.
template <class T>
class Global {
 public:
  Global(T* data, std::int64_t size, GlobalArray* array) : data_(data), size_(size), array_(array) {}
  GlobalElement<T> operator[](Index i) const {
    if (i.value < 0 || i.value >= size_) outside_global(*array_, i);
    return {data_ + i.value, array_, i};
  }
  std::int64_t size() const { return size_; }

 private:
  T* data_;
  std::int64_t size_;
  GlobalArray* array_;
};

template <class T>
class SharedElement {
 public:
  SharedElement(T* place, const char* name, const Index& index)
      : name_(name), index_(index), element_(place, index.where) {}
  SharedElement(const SharedElement&) = default;
  operator T() const {
    const T value = element_;
    if (unwritten(value)) unwritten_shared(index_, name_);
    return value;
  }
  explicit operator float() const requires(std::is_same_v<T, bf16>) {
    return static_cast<float>(static_cast<T>(*this));
  }
  const SharedElement& operator=(T value) const {
    element_ = value;
    return *this;
  }
  const SharedElement& operator=(const SharedElement& other) const { return *this = static_cast<T>(other); }
  const SharedElement& operator+=(T value) const { return *this = static_cast<T>(*this) + value; }
  const SharedElement& operator-=(T value) const { return *this = static_cast<T>(*this) - value; }
  const SharedElement& operator*=(T value) const { return *this = static_cast<T>(*this) * value; }

 private:
  const char* name_;
  Index index_;
  keel::emulation::SharedElement<T> element_;
};

// An array that the threads of a block share.
template <class T>
class Shared {
 public:
  Shared(T* data, std::size_t count, const char* name) : data_(data), count_(count), name_(name) {}
  SharedElement<T> operator[](Index i) const {
    if (i.value < 0 || i.value >= static_cast<std::int64_t>(count_)) outside_shared(i, count_, name_);
    note_shared(data_ + i.value, name_, i.where);
    return {data_ + i.value, name_, i};
  }

 private:
  T* data_;
  std::size_t count_;
  const char* name_;
};

}  // namespace learn

// Each use in the source is an array of its own, as __shared__ float name[n] is.
#define LEARN_SHARED(T, name, n)                                                  \
  const ::learn::Shared<T> name {                                                 \
    ::keel::emulation::shared_span<T>((n), [] {}).data(), std::size_t{(n)}, #name \
  }
