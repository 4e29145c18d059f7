#pragma once
// Matrices that somebody else owns, as exercises get them: x[row][column].

#include <type_traits>

#include "learn/given/row.h"

namespace learn {

// Ends the check with a message: `index` is no row of a matrix that has `rows`.
[[noreturn]] void outside_rows(const Index& index, std::int64_t rows);

// How often a reader turned to another row of a matrix.
struct Turns {
  std::int64_t count = 0, row = -1;
  void to(std::int64_t next) {
    if (next != row) ++count;
    row = next;
  }
};

// Rows of `columns` numbers, one after the other from `data` on. An index outside ends the check with its
// line.
template <class T>
class Matrix {
 public:
  Matrix(T* data, std::int64_t rows, std::int64_t columns, Turns* turns = nullptr)
      : data_(data), rows_(rows), columns_(columns), turns_(turns) {}

  Row<T> operator[](Index row) const {
    if (row.value < 0 || row.value >= rows_) outside_rows(row, rows_);
    if (turns_ != nullptr) turns_->to(row.value);
    return {data_ + row.value * columns_, columns_};
  }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }

 private:
  T* data_;
  std::int64_t rows_, columns_;
  Turns* turns_;
};

using InMatrix = Matrix<const float>;  // what a function reads
using OutMatrix = Matrix<float>;       // what it writes

}  // namespace learn
