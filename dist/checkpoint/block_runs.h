#pragma once
// Where the elements of a block lie in a tensor that is read as one row: in runs of equal length, in the block's own
// order.

#include <cstdint>

#include "keel/runtime/dims.h"

namespace keel {

class BlockRuns {
 public:
  // Indices [begin[d], begin[d] + count[d]) of each dimension d, which lie in the tensor.
  BlockRuns(const Dims& shape, const Dims& begin, const Dims& count);
  // Elements [begin, begin + count) of the row.
  BlockRuns(std::int64_t row, std::int64_t begin, std::int64_t count)
      : BlockRuns(Dims{row}, Dims{begin}, Dims{count}) {}

  std::int64_t numel() const { return product(count_); }
  std::int64_t run_length() const { return count_[count_.size() - 1]; }
  // How many elements of the block lie before an element of the tensor, or of its end.
  std::int64_t before(std::int64_t place) const;
  // The place in the tensor of the block's element `index`.
  std::int64_t place_of(std::int64_t index) const;

 private:
  Dims shape_, begin_, count_;  // inner dimensions that are whole are one with the dimension around them
};

}  // namespace keel
