#include "keel/dist/comm/parts.h"

namespace keel {

Parts::Parts(const Collective& collective, int rank, int ranks)
    : traits_(traits_of(collective.kind)),
      rank_(rank),
      root_(collective.peer),
      count_(collective.count()),
      outgoing_(count_, ranks, collective.counts),
      incoming_(count_, ranks, collective.incoming.empty() ? collective.counts : collective.incoming),
      by_pairs_(!collective.incoming.empty()),
      differ_(traits_.adds || collective.kind == CollectiveKind::all_to_all ||
              (root_gives() && traits_.gotten == Held::part)) {}

Span Parts::given(int from, int to) const {
  if (!gives(from) || (!traits_.adds && !gets(to))) return {};
  if (by_pairs_ && from != rank_) return {0, incoming_.of(from).count()};
  if (differ_) return outgoing_.of(to);
  return traits_.given == Held::part ? Span{0, outgoing_.of(from).count()} : whole();
}

Span Parts::gotten(int from) const {
  if (!gives(from) || !gets(rank_)) return {};
  if (traits_.gotten == Held::part) return {0, outgoing_.of(rank_).count()};
  return root_gives() ? whole() : incoming_.of(from);
}

}  // namespace keel
