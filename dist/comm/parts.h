#pragma once
// Which elements go from which rank to which, in a collective as one rank sees it.

#include "keel/dist/comm/collective_table.h"
#include "keel/dist/comm/schedule.h"

namespace keel {

class Parts {
 public:
  Parts(const Collective& collective, int rank, int ranks);

  // Elements of the input of `from` that are for `to`, one of them this rank. Of a sum: those that `to` adds. Of what
  // another rank gives in an all_to_all_v the length alone is right: where it begins, that rank knows.
  Span given(int from, int to) const;
  // Where in this rank's output lies what comes from `from`; of a collective that moves numbers.
  Span gotten(int from) const;
  // Whether ranks give each receiver other elements, rather than all the same.
  bool differ() const { return differ_; }
  bool gives(int rank) const { return traits_.given != Held::nothing && (!root_gives() || rank == root_); }
  bool gets(int rank) const { return traits_.gotten != Held::nothing && (!root_gets() || rank == root_); }
  bool root_gives() const { return traits_.given == Held::whole_at_root; }
  bool root_gets() const { return traits_.gotten == Held::whole_at_root; }

  Span whole() const { return {0, count_}; }
  Span shard(int rank) const { return outgoing_.of(rank); }
  // Of a span that one rank gives another, apart from an all_to_all_v.
  std::int64_t longest() const { return root_gives() && !differ_ ? count_ : outgoing_.longest(); }
  // Whether this is an all_to_all_v.
  bool are_by_pairs() const { return by_pairs_; }

 private:
  const CollectiveTraits& traits_;
  int rank_, root_;
  std::int64_t count_;
  Cut outgoing_, incoming_;
  bool by_pairs_, differ_;
};

}  // namespace keel
