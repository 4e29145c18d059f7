#pragma once
// Data parallel training in thirty lines, to read before keel/dist/parallel/sharded.h. It computes the same, but
// nothing overlaps, and every rank keeps everything.

#include <vector>

#include "keel/autograd/backward.h"
#include "keel/dist/comm/communicator.h"
#include "keel/kernels/elementwise.h"
#include "keel/nn/flat_buffer.h"

namespace keel {

class NaiveDataParallel {
 public:
  // Ranks that start from the same seed have the same weights.
  NaiveDataParallel(Module& model, const Context& context, Communicator& ranks, std::uint64_t seed = 1)
      : ranks_(ranks), buffers_(materialize(model, context, {.seed = seed})) {}

  // One step of gradient descent on the mean of the ranks' losses, each of them a mean over as many samples.
  void step(const Variable& loss, double lr) {
    for (FlatBuffer& buffer : buffers_) buffer.zero_grad();
    backward(loss);
    for (FlatBuffer& buffer : buffers_) {
      buffer.complete_gradient();
      ranks_.all_reduce(buffer.gradient).wait();  // the sum over ranks, everywhere
      kernels::scale(buffer.gradient, -lr / ranks_.size());
      kernels::accumulate(buffer.values, buffer.gradient);
    }
  }

 private:
  Communicator& ranks_;
  std::vector<FlatBuffer> buffers_;
};

}  // namespace keel
