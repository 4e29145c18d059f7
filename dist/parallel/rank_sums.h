#pragma once
// Numbers of all ranks, added up in fp64 in the order of ranks, so that every rank goes on from the same bits.

#include <cstdint>

#include "keel/dist/comm/communicator.h"

namespace keel {

// `count` numbers of each rank, which work in `context`; the collectives of `ranks` are those of `collectives`, which
// may be another. The first `sharers` ranks have all that there is, and the others the same again.
class RankSums {
 public:
  RankSums(std::int64_t count, const Context& context, const Context& collectives, Communicator& ranks, int sharers);

  // f64 (count): what this rank has, to be written; and of all ranks, after add(). The same where nobody shares.
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
  Tensor gathered_;  // f64 (ranks, count), where the collectives are
  Tensor mine_, all_;
  double waited_ms_ = 0;
};

}  // namespace keel
