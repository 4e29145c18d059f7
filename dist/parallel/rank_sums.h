#pragma once
// Numbers of all ranks, added up in fp64 in the order of ranks, so that every rank goes on from the same bits: sums
// over whole parameters, for optimizers that need them, among others.

#include <cstdint>
#include <span>
#include <vector>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/comm/schedule.h"
#include "keel/optim/optimizer.h"

namespace keel {

// The ranks that numbers go between. Their user works in `context`, and their collectives in `collectives`, which may
// be another one.
struct RanksSite {
  Communicator& ranks;
  Context context, collectives;
  double& waited_ms;  // in which this thread has waited for the others
};

// Sums of `count` numbers of each rank. The first `sharers` ranks have all shards; the other ranks hold the same again,
// and are not added. Where a rank has several virtual ranks, each has numbers of its own, and they are added in their
// order.
class RankSums {
 public:
  RankSums(std::int64_t count, const RanksSite& site, int sharers, int virtual_ranks = 1);

  // Both f64 (count): the numbers of a virtual rank of this one, which the caller writes, and the sums over ranks once
  // add() was called. They are one tensor where nobody shares.
  Tensor mine(int number = 0) const { return mine_.select(0, number); }
  const Tensor& all() const { return all_; }
  // One all-gather. Every rank calls it.
  void add(CombineOp op = CombineOp::sum);

 private:
  Tensor gather();

  RanksSite site_;
  int sharers_, virtual_ranks_;
  Tensor gathered_;  // f64 (ranks, virtual ranks of each, count), in the context of the collectives
  Tensor mine_;      // f64 (virtual ranks, count)
  Tensor all_;
};

// Sums over whole parameters: what each rank measures of its shards, added up. Whatever the stage, a rank measures its
// own shards alone, and the sums of all ranks are added in fp64 in the order of ranks. So every rank goes on from the
// same numbers, and all stages from the same bits. A pass is one all-gather. Where a rank has several virtual ranks, it
// measures the shard of each.
class TensorSums {
 public:
  // `shapes` are those of all trainable parameters, the same on every rank. For the rest see RankSums.
  TensorSums(const Optimizer& optimizer, std::span<const Dims> shapes, const RanksSite& site, int sharers,
             int virtual_ranks);

  // By pass, the sums that the optimizer measures over the part of a parameter that a virtual rank of this one has, and
  // the sums over the whole parameter that all ranks then have. What is never measured is 0.
  std::vector<Tensor> of_part(std::size_t parameter, int number = 0) const {
    return cut(parameter, [number](const RankSums& sums) { return sums.mine(number); });
  }
  std::vector<Tensor> of_whole(std::size_t parameter) const {
    return cut(parameter, [](const RankSums& sums) { return sums.all(); });
  }

  // Runs all passes. `parts` are the parts of this rank's shards, whose `measured` is of_part(); `ranges` are what the
  // rank updates.
  void measure(std::span<const ParameterRange> parts, std::span<const ParameterRange> ranges, const StepInput& input);

 private:
  template <class Numbers>
  std::vector<Tensor> cut(std::size_t parameter, const Numbers& numbers) const {
    std::vector<Tensor> cuts;
    for (std::size_t pass = 0; pass < sums_.size(); ++pass) {
      const Span place = places_[pass][parameter];
      cuts.push_back(numbers(sums_[pass]).slice(0, place.begin, place.end));
    }
    return cuts;
  }

  const Optimizer& optimizer_;
  std::vector<std::vector<Span>> places_;  // by pass and parameter
  std::vector<RankSums> sums_;             // by pass
};

}  // namespace keel
