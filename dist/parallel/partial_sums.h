#pragma once
// Sums of the gradients that one rank computes in turn, along a balanced binary tree.

#include <cstddef>
#include <vector>

#include "keel/dist/comm/communicator.h"

namespace keel {

// A binary counter: where its k-th bit is set there is a sum of 2^k gradients that nothing was added to yet. So 2^k
// gradients need k sums, and these are added as CombineOp::pairwise_sum adds ranks.
class PartialSums {
 public:
  // For `gradients` of them, a power of two, of `count` elements each. The memory is such as `ranks` handle best; all
  // of them take part.
  PartialSums(int gradients, std::int64_t count, DType dtype, const Context& context, Communicator& ranks);

  // Adds the next gradient, of any floating dtype.
  void add(const Tensor& gradient);
  // Whether all were added; total() is then their sum.
  bool is_complete() const { return added_ == gradients_; }
  const Tensor& total() const { return sums_.back(); }
  void restart() { added_ = 0; }

 private:
  std::size_t gradients_, added_ = 0;
  std::vector<Tensor> sums_;  // by k
};

}  // namespace keel
