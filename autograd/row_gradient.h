#pragma once
// The gradient of a table as the rows that were looked up, so that its memory follows from what a batch uses.

#include <cstdint>
#include <span>

#include "keel/runtime/tensor.h"

namespace keel {

// The gradient of a table (vocabulary, width) that is zero in all rows but those that it names. A row that was used is
// named even where its gradient is 0. A handle: copies share the numbers.
class RowGradient {
 public:
  RowGradient() = default;  // empty: belongs to no table
  // No rows yet. `dtype`: of the values.
  RowGradient(const Context& context, const Dims& table, DType dtype);

  bool defined() const { return values_.defined(); }
  const Dims& table() const { return table_; }
  std::int64_t count() const { return indices_.numel(); }
  // i64 (count), ascending, each once; in the processor's memory, since how many there are decides what is allocated.
  const Tensor& indices() const { return indices_; }
  std::span<const std::int64_t> rows() const;
  const Tensor& values() const { return values_; }  // (count, width)

  // Adds values[i] to row ids[i], in the order of i, in fp32 or wider, rounded once: the same bits as
  // kernels::embedding_backward. ids: i32 or i64, any shape; values: (ids..., width), of the gradient's dtype or
  // narrower. Waits for ids that are on a device. An id outside the table is an Error.
  void add(const Tensor& ids, const Tensor& values);
  // The rows of the table in [begin, end): views.
  RowGradient between(std::int64_t begin, std::int64_t end) const;
  RowGradient cast(DType dtype) const;
  // The whole table's gradient.
  Tensor dense() const;

 private:
  Dims table_;
  Tensor indices_, values_;
};

}  // namespace keel
