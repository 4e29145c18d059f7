#pragma once
// A short list of extents or strides, kept inline so that shapes never allocate.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>

#include "keel/runtime/error.h"

namespace keel {

inline constexpr int kMaxRank = 8;

class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  explicit Dims(std::span<const std::int64_t> values) {
    for (const std::int64_t value : values) push_back(value);
  }
  Dims(int count, std::int64_t value) {
    for (int i = 0; i < count; ++i) push_back(value);
  }

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::int64_t operator[](int i) const { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t back() const { return (*this)[size_ - 1]; }
  const std::int64_t* begin() const { return values_.data(); }
  const std::int64_t* end() const { return values_.data() + size_; }

  void push_back(std::int64_t value) {
    KEEL_CHECK(size_ < kMaxRank, "a tensor has at most ", kMaxRank, " dimensions");
    values_[static_cast<std::size_t>(size_++)] = value;
  }
  void pop_back() { --size_; }
  void erase(int at) {
    for (int i = at; i + 1 < size_; ++i) (*this)[i] = (*this)[i + 1];
    --size_;
  }
  void insert(int at, std::int64_t value) {
    push_back(value);
    for (int i = size_ - 1; i > at; --i) (*this)[i] = (*this)[i - 1];
    (*this)[at] = value;
  }

  friend bool operator==(const Dims& a, const Dims& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

 private:
  std::array<std::int64_t, kMaxRank> values_{};
  int size_ = 0;
};

// Number of elements of a shape; 1 for the empty shape (a scalar).
inline std::int64_t product(const Dims& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

// Row-major strides of a dense tensor of this shape, in elements.
inline Dims dense_strides(const Dims& shape) {
  Dims strides(shape.size(), 1);
  for (int i = shape.size() - 2; i >= 0; --i) strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

inline std::ostream& operator<<(std::ostream& out, const Dims& dims) {
  out << '(';
  for (int i = 0; i < dims.size(); ++i) out << (i ? ", " : "") << dims[i];
  return out << ')';
}

}  // namespace keel
