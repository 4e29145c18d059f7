#include "keel/dist/parallel/partial_sums.h"

#include <bit>
#include <utility>

#include "keel/kernels/elementwise.h"
#include "keel/runtime/error.h"

namespace keel {

PartialSums::PartialSums(int gradients, std::int64_t count, DType dtype, const Context& context, Communicator& ranks)
    : gradients_(static_cast<std::size_t>(gradients)) {
  KEEL_CHECK(std::has_single_bit(gradients_) && gradients > 1, "a tree of sums is over 2, 4, 8 ... gradients, got ",
             gradients);
  for (int level = std::countr_zero(gradients_); level > 0; --level)
    sums_.push_back(ranks.allocate(context, count, dtype, Purpose::gradient));
}

void PartialSums::add(const Tensor& gradient) {
  KEEL_CHECK(!is_complete(), "a tree over ", gradients_, " gradients gets no further one");
  Tensor carry = gradient;
  std::size_t level = 0;
  for (; (added_ >> level & 1) != 0; ++level) {
    kernels::accumulate(sums_[level], carry);
    carry = sums_[level];
  }
  ++added_;
  if (level == 0) kernels::copy_into(sums_.front(), gradient);
  else if (level < sums_.size()) std::swap(sums_[level - 1], sums_[level]);
}

}  // namespace keel
