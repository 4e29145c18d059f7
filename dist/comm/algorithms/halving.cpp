#include <algorithm>

#include "keel/dist/comm/algorithms/list.h"
#include "keel/dist/comm/algorithms/writer.h"

namespace keel::collectives {
namespace {

// Recursive halving: the ranks split into a lower and an upper half, which exchange what the other half will own, and
// go on among themselves. Doubling is the way back. In halves of different size the last rank of the larger one has
// the last of the smaller one for a partner, too.
struct Halves {
  int first, middle, last;  // ranks [first, middle) and [middle, last)

  bool below(int rank) const { return rank < middle; }
  // The rank of the other half that `rank` gives to. That one gives to `rank` only where givers(rank) lists it.
  int partner(int rank) const {
    if (below(rank)) return std::min(middle + (rank - first), last - 1);
    return first + (rank - middle);  // the upper half is no longer than the lower one
  }
  // All ranks of the other half whose partner is `rank`, in order.
  std::vector<int> givers(int rank) const {
    std::vector<int> found;
    for (int other = below(rank) ? middle : first, end = below(rank) ? last : middle; other < end; ++other)
      if (partner(other) == rank) found.push_back(other);
    return found;
  }
};

// From the whole group down to the halves of two ranks.
std::vector<Halves> halvings(int rank, int size) {
  std::vector<Halves> found;
  for (int first = 0, last = size; last - first > 1;) {
    const Halves halves{first, first + (last - first + 1) / 2, last};
    found.push_back(halves);
    (halves.below(rank) ? last : first) = halves.middle;
  }
  return found;
}

void write_halving(Writer& w, Piece owned) {
  const auto shards = [&](int first, int last) { return Span{w.shard(first).begin, w.shard(last - 1).end}; };
  // The sums so far: the input, until something was added. `base`: where element 0 of the tensor would lie.
  Place place = Place::input;
  std::int64_t base = 0;
  for (const Halves& halves : halvings(w.rank(), w.size())) {
    const bool below = halves.below(w.rank());
    const Span mine = below ? shards(halves.first, halves.middle) : shards(halves.middle, halves.last);
    const Span theirs = below ? shards(halves.middle, halves.last) : shards(halves.first, halves.middle);
    const std::vector<int> givers = halves.givers(w.rank());
    w.begin_step();
    w.send(halves.partner(w.rank()), {place, moved(theirs, base)});
    std::vector<Piece> terms = {{place, moved(mine, base)}};
    for (const int giver : givers) {
      terms.push_back(w.scratch(mine.count()));
      w.receive(giver, terms.back());
    }
    if (givers.empty()) continue;
    const Piece sum = w.scratch(mine.count());
    w.combine(std::move(terms), sum);
    place = Place::scratch;
    base = sum.span.begin - mine.begin;
  }
  w.begin_step();
  w.combine({{place, moved(w.shard(w.rank()), base)}}, owned);
}

void write_doubling(Writer& w) {
  const auto shards = [&](int first, int last) { return output({w.shard(first).begin, w.shard(last - 1).end}); };
  std::vector<Halves> levels = halvings(w.rank(), w.size());
  std::reverse(levels.begin(), levels.end());
  for (const Halves& halves : levels) {
    const bool below = halves.below(w.rank());
    const Piece mine = below ? shards(halves.first, halves.middle) : shards(halves.middle, halves.last);
    const Piece theirs = below ? shards(halves.middle, halves.last) : shards(halves.first, halves.middle);
    w.begin_step();
    w.receive(halves.partner(w.rank()), theirs);
    for (const int other : halves.givers(w.rank())) w.send(other, mine);
  }
}

Schedule halving_all_reduce(const CollectiveShape& shape) {
  Writer w(shape);
  write_halving(w, output(w.shard(w.rank())));
  write_doubling(w);
  return w.finish();
}
Schedule halving_reduce_scatter(const CollectiveShape& shape) {
  Writer w(shape);
  write_halving(w, output(alone(w.shard(w.rank()))));
  return w.finish();
}
Schedule halving_all_gather(const CollectiveShape& shape) {
  Writer w(shape);
  write_own_shard(w);
  write_doubling(w);
  return w.finish();
}

}  // namespace

const Algorithm kHalving = {"halving",
                            "by halves of the group, from the widest to pairs, rounded at each",
                            "all-reduce: about 2 f S in 2 log2(n) steps",
                            false,
                            false,
                            halving_all_reduce,
                            halving_reduce_scatter,
                            halving_all_gather};

}  // namespace keel::collectives
