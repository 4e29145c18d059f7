#pragma once
// Numbers of all ranks, added up in fp64 in the order of ranks, so that every rank goes on from the same bits.

#include <cstdint>

#include "keel/dist/comm/communicator.h"

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

}  // namespace keel
