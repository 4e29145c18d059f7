#include "keel/dist/comm/algorithms/list.h"
#include "keel/dist/comm/algorithms/writer.h"

namespace keel::collectives {
namespace {

// Direct: everyone sends each shard to its owner, who adds them in the order of ranks.
void write_direct_reduce(Writer& w, Piece result) {
  w.begin_step();
  std::vector<Piece> terms;
  for (int peer = 0; peer < w.size(); ++peer)
    terms.push_back(peer == w.rank() ? input(w.shard(peer)) : w.scratch(w.shard(w.rank()).count()));
  // Each begins with its neighbour, so that not all send to one.
  for (int i = 1; i < w.size(); ++i) {
    const int peer = (w.rank() + i) % w.size();
    w.send(peer, input(w.shard(peer)));
    w.receive(peer, terms[static_cast<std::size_t>(peer)]);
  }
  w.combine(std::move(terms), result);
}

void write_direct_gather(Writer& w, Piece own) {
  w.begin_step();
  for (int i = 1; i < w.size(); ++i) {
    const int peer = (w.rank() + i) % w.size();
    w.send(peer, own);
    w.receive(peer, output(w.shard(peer)));
  }
}

Schedule direct_all_reduce(const CollectiveShape& shape) {
  Writer w(shape);
  const Piece own = output(w.shard(w.rank()));
  write_direct_reduce(w, own);
  write_direct_gather(w, own);
  return w.finish();
}
Schedule direct_reduce_scatter(const CollectiveShape& shape) {
  Writer w(shape);
  write_direct_reduce(w, output(alone(w.shard(w.rank()))));
  return w.finish();
}
Schedule direct_all_gather(const CollectiveShape& shape) {
  Writer w(shape);
  write_own_shard(w);
  write_direct_gather(w, output(w.shard(w.rank())));
  return w.finish();
}

}  // namespace

const Algorithm kDirect = {"direct",
                           "by rank, in one sum that is rounded once",
                           "all-reduce: sends 2 f S in 2 steps of n - 1 messages",
                           true,
                           false,
                           direct_all_reduce,
                           direct_reduce_scatter,
                           direct_all_gather};

}  // namespace keel::collectives
