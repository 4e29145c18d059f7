#include <algorithm>

#include "keel/dist/comm/algorithms/list.h"
#include "keel/dist/comm/algorithms/writer.h"

namespace keel::collectives {
namespace {

// Tree (binomial): in round k, ranks whose k-th bit is the lowest one set hand their sum to the rank without it.
// Counts ranks from `root`. The sum comes to lie in `result`, at the root.
void write_tree_sum(Writer& w, Piece result) {
  w.begin_step();
  w.combine({input(w.whole())}, result);
  for (int bit = 1; bit < w.size(); bit *= 2) {
    w.begin_step();
    if ((w.rank() & bit) != 0) return w.send(w.rank() - bit, result);
    if (w.rank() + bit >= w.size()) continue;
    const Piece arrived = w.scratch(w.whole().count());
    w.receive(w.rank() + bit, arrived);
    w.combine({result, arrived}, result);
  }
}

// Whoever has the span passes it on, to the farthest first. Ranks are counted from the root.
void write_tree_broadcast(Writer& w, int root, Span span) {
  const int n = w.size(), place = (w.rank() - root + n) % n;
  int bit = 1;
  for (; bit < n && (place & bit) == 0; bit *= 2) {}
  w.begin_step();
  if (place != 0) w.receive((place - bit + root) % n, output(span));
  w.begin_step();
  for (bit /= 2; bit > 0; bit /= 2)
    if (place + bit < n) w.send((place + bit + root) % n, output(span));
}

Schedule tree_all_reduce(const CollectiveShape& shape) {
  Writer w(shape);
  write_tree_sum(w, output(w.whole()));
  write_tree_broadcast(w, 0, w.whole());
  return w.finish();
}
Schedule tree_reduce_scatter(const CollectiveShape& shape) {
  Writer w(shape);
  const Piece sum = w.scratch(w.whole().count());
  write_tree_sum(w, sum);
  write_scatter(w, sum);
  return w.finish();
}
// The shards of ranks [place, place + bit) lie side by side, so that a rank hands on one span.
Schedule tree_all_gather(const CollectiveShape& shape) {
  Writer w(shape);
  write_own_shard(w);
  const int n = w.size();
  const auto shards = [&](int first, int count) {
    return output({w.shard(first).begin, w.shard(std::min(first + count, n) - 1).end});
  };
  for (int bit = 1; bit < n; bit *= 2) {
    w.begin_step();
    if ((w.rank() & bit) != 0) {
      w.send(w.rank() - bit, shards(w.rank(), bit));
      break;
    }
    if (w.rank() + bit < n) w.receive(w.rank() + bit, shards(w.rank() + bit, bit));
  }
  write_tree_broadcast(w, 0, w.whole());
  return w.finish();
}

}  // namespace

const Algorithm kTree = {"tree",
                         "pairs, then pairs of pairs, rounded at each",
                         "all-reduce: S up and log2(n) S down in 2 log2(n) steps",
                         false,
                         true,
                         tree_all_reduce,
                         tree_reduce_scatter,
                         tree_all_gather};

}  // namespace keel::collectives

namespace keel {

Schedule broadcast_tree(const CollectiveShape& shape, int root) {
  collectives::Writer w(shape);
  collectives::write_tree_broadcast(w, root, w.whole());
  return w.finish();
}

}  // namespace keel
