#pragma once
// Numbers whose sums are known: a collective's result can be checked to the bit in every dtype and order of additions.
//
// All are whole, not negative, and so small that even the sum over all ranks is exact in the dtype. Where there are too
// many ranks for that, only some bring numbers other than zero; which ones depends on the element. For products they
// are 1 and 2, and so few are 2 that the product is exact.

#include "keel/dist/lab/exercise.h"

namespace keel::lab {

class KnownNumbers {
 public:
  // `salt`: other numbers for another call.
  KnownNumbers(DType dtype, int ranks, std::uint32_t salt = 0, CombineOp op = CombineOp::sum);
  // What a rank brings as an element of the whole tensor.
  std::int64_t of(int rank, std::int64_t element) const;
  std::int64_t sum(std::int64_t element) const;
  // What the operation makes of all ranks' elements, as the dtype holds it.
  double result(std::int64_t element) const;
  // No sum and no number is larger; of sums.
  std::int64_t largest_sum() const { return largest_sum_; }

 private:
  DType dtype_;
  CombineOp op_;
  int ranks_, every_ = 1;
  std::uint32_t mask_ = 1, salt_;
  std::int64_t largest_sum_;
};

// Fills the input with its numbers, and the output with numbers that no result is equal to.
void prepare(const Call& call, const KnownNumbers& numbers);
// Elements of the output that are not what they must be. Waits for the device's stream.
std::int64_t count_wrong(const Call& call, const KnownNumbers& numbers);
// Fills input and output with zeros.
void clear(const Call& call);

}  // namespace keel::lab
