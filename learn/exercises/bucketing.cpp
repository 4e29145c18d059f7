// bucketing: few large reductions during backward, instead of many small ones
//
// Data parallel training adds up each gradient over all ranks. A model has hundreds of parameters, many of
// them small, and a call costs microseconds however little it sends. So gradients are packed into buckets (Li
// and others, "PyTorch Distributed", 2020). Backward computes the gradient of the last parameter first. While
// it goes on, complete buckets are already on their way.
//
//   Plan: from the last parameter to the first. A gradient goes into the current bucket if the bucket then
//     has at most `bytes` bytes (4 a number). Otherwise it begins a new one. A gradient of more than `bytes`
//     has a bucket of its own.
//   Begin: as soon as all gradients of a bucket have arrived, copy them into one row and begin its
//     all_reduce. arrived() must not wait for it. finish() waits, and copies the sums back.
//   Order: all ranks begin the buckets in the order of the plan. Gradients may arrive in another order on
//     some rank. A bucket that is complete there waits until those before it have begun.
//
// There are many steps: after finish(), gradients arrive again. given/buckets.h has the interface, and
// given/ranks.h the group. To read afterwards: dist/parallel/unit_schedule.h.

#include <cstdint>
#include <vector>

#include "learn/given/buckets.h"

class Buckets : public learn::Reducer {
 public:
  // gradients[p] is parameter p's, and stays where it is.
  Buckets(learn::Group& group, std::vector<learn::Out> gradients, std::int64_t bytes)
      : group_(group), gradients_(std::move(gradients)) {}

  void arrived(int parameter) override {
    // Your code.
  }
  void finish() override {
    // Your code.
  }

 private:
  learn::Group& group_;
  std::vector<learn::Out> gradients_;
};

std::unique_ptr<learn::Reducer> make_buckets(learn::Group& group, std::vector<learn::Out> gradients,
                                             std::int64_t bytes) {
  return std::make_unique<Buckets>(group, std::move(gradients), bytes);
}
