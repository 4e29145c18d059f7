#pragma once
// Numbers of all ranks, added up in fp64 in the order of ranks, so that every rank goes on from the same bits.

#include <cstdint>

#include "keel/dist/comm/communicator.h"

namespace keel {

// Sums of `count` numbers of each rank. The caller works in `context`, and the collectives of `ranks` in `collectives`,
// which may be another one. The first `sharers` ranks have all shards; the other ranks hold the same again, and are not
// added.
class RankSums {
 public:
  RankSums(std::int64_t count, const Context& context, const Context& collectives, Communicator& ranks, int sharers);

  // Both f64 (count): this rank's numbers, which the caller writes, and the sums over ranks once add() was called. They
  // are one tensor where nobody shares.
  const Tensor& mine() const { return mine_; }
  const Tensor& all() const { return all_; }
  // One all-gather. Every rank calls it.
  void add(CombineOp op = CombineOp::sum);

  // Milliseconds in which this thread has waited for the other ranks.
  double waited_ms() const { return waited_ms_; }

 private:
  Tensor gather();

  Communicator& ranks_;
  Context context_;
  int sharers_;
  Tensor gathered_;  // f64 (ranks, count), in the context of the collectives
  Tensor mine_, all_;
  double waited_ms_ = 0;
};

}  // namespace keel
