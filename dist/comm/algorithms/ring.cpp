#include "keel/dist/comm/algorithms/list.h"
#include "keel/dist/comm/algorithms/writer.h"

namespace keel::collectives {
namespace {

// Ring: partial sums travel once around; shard i sets out from rank i + 1 and ends at rank i.
// `owned` receives the finished sum of the rank's own shard.
void write_ring_reduce(Writer& w, Piece owned) {
  const int n = w.size();
  Piece arrived;
  for (int step = 1; step < n; ++step) {
    const int leaving = (w.rank() + n - step) % n, coming = (w.rank() + n - step - 1) % n;
    w.begin_step();
    w.send(w.next(), step == 1 ? input(w.shard(leaving)) : arrived);
    arrived = w.scratch(w.shard(coming).count());
    w.receive(w.previous(), arrived);
    w.combine({arrived, input(w.shard(coming))}, coming == w.rank() ? owned : arrived);
  }
  if (n > 1) return;
  w.begin_step();
  w.combine({input(w.whole())}, owned);
}

void write_ring_gather(Writer& w) {
  const int n = w.size();
  for (int step = 0; step + 1 < n; ++step) {
    w.begin_step();
    w.send(w.next(), output(w.shard((w.rank() + n - step) % n)));
    w.receive(w.previous(), output(w.shard((w.rank() + n - step - 1) % n)));
  }
}

Schedule ring_all_reduce(const CollectiveShape& shape) {
  Writer w(shape);
  write_ring_reduce(w, output(w.shard(w.rank())));
  write_ring_gather(w);
  return w.finish();
}
Schedule ring_reduce_scatter(const CollectiveShape& shape) {
  Writer w(shape);
  write_ring_reduce(w, output(alone(w.shard(w.rank()))));
  return w.finish();
}
Schedule ring_all_gather(const CollectiveShape& shape) {
  Writer w(shape);
  write_own_shard(w);
  write_ring_gather(w);
  return w.finish();
}

}  // namespace

const Algorithm kRing = {"ring",
                         "shard i from rank i + 1 once around to rank i, rounded at each",
                         "all-reduce: 2 f S in 2 (n - 1) steps",
                         false,
                         false,
                         ring_all_reduce,
                         ring_reduce_scatter,
                         ring_all_gather};

}  // namespace keel::collectives
