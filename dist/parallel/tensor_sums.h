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
  // `shapes` are those of all trainable parameters, the same on every rank. The optimizer works in `context`, and the
  // collectives of `ranks` in `collectives`, which may be another one. The first `sharers` ranks have all shards; the
  // other ranks hold the same again.
  TensorSums(const Optimizer& optimizer, std::span<const Dims> shapes, const Context& context,
             const Context& collectives, Communicator& ranks, int sharers);

  // By pass, the sums that the optimizer measures over this rank's part of a parameter, and the sums over the whole
  // parameter that all ranks then have. What is never measured is 0.
  std::vector<Tensor> of_part(std::size_t parameter) const { return cut(parameter, &RankSums::mine); }
  std::vector<Tensor> of_whole(std::size_t parameter) const { return cut(parameter, &RankSums::all); }

  // Runs all passes. `parts` are the parts of this rank's shards, whose `measured` is of_part(); `ranges` are what the
  // rank updates.
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
