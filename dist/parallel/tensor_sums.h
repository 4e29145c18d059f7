#pragma once
// Sums over whole parameters, for optimizers that need them: what each rank measures of its shards, added up.

#include <cstdint>
#include <span>
#include <vector>

#include "keel/dist/comm/schedule.h"
#include "keel/dist/parallel/rank_sums.h"
#include "keel/optim/optimizer.h"

namespace keel {

// Whatever the stage, a rank measures its own shards alone, and the sums of all ranks are added in fp64 in the order of
// ranks. So every rank goes on from the same numbers, and all stages from the same bits. A pass is one all-gather.
class TensorSums {
 public:
  // `shapes`: of all trainable parameters, the same on every rank. The optimizer works in `context`; the collectives of
  // `ranks` are those of `collectives`, which may be another. The first `sharers` ranks have all shards, and the others
  // the same again.
  TensorSums(const Optimizer& optimizer, std::span<const Dims> shapes, const Context& context,
             const Context& collectives, Communicator& ranks, int sharers);

  // By pass, what the optimizer measures of this rank's part of a parameter, and what all ranks then have of the whole.
  // What is never measured is 0.
  std::vector<Tensor> of_part(std::size_t parameter) const { return cut(parameter, &RankSums::mine); }
  std::vector<Tensor> of_whole(std::size_t parameter) const { return cut(parameter, &RankSums::all); }

  // All passes. `parts`: of this rank's shards, with of_part() as what is measured; `ranges`: what the rank updates.
  void measure(std::span<const ParameterRange> parts, std::span<const ParameterRange> ranges, const StepInput& input);

  // Milliseconds in which this thread has waited for the other ranks.
  double waited_ms() const;

 private:
  std::vector<Tensor> cut(std::size_t parameter, const Tensor& (RankSums::*numbers)() const) const;

  const Optimizer& optimizer_;
  std::vector<std::vector<Span>> places_;  // by pass and parameter
  std::vector<RankSums> sums_;             // by pass
};

}  // namespace keel
