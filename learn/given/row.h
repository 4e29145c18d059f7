#pragma once
// Numbers in a row that somebody else owns, as exercises get them.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <source_location>

namespace learn {

// An index, and the line that wrote it.
struct Index {
  std::int64_t value;
  std::source_location where;
  template <std::integral I>
  Index(I i, std::source_location line = std::source_location::current())
      : value(static_cast<std::int64_t>(i)), where(line) {}
};

// Ends the check with a message: `index` is outside of a row of `size` elements.
[[noreturn]] void outside(const Index& index, std::int64_t size);

// `size` elements from `data` on. An index outside of them ends the check with the line that used it.
template <class T>
class Row {
 public:
  Row(T* data, std::int64_t size) : data_(data), size_(size) {}
  template <class U>
  requires std::same_as<const U, T> Row(const Row<U>& other) : data_(other.data()), size_(other.size()) {}

  T& operator[](Index i) const {
    if (i.value < 0 || i.value >= size_) outside(i, size_);
    return data_[i.value];
  }
  std::int64_t size() const { return size_; }
  T* data() const { return data_; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }

 private:
  T* data_;
  std::int64_t size_;
};

using In = Row<const float>;  // what a function reads
using Out = Row<float>;       // what it writes

}  // namespace learn
