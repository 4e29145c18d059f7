#include "keel/dist/comm/algorithms/list.h"
#include "keel/dist/comm/algorithms/writer.h"

namespace keel::collectives {
namespace {

// Flat: rank 0 does all the work. The slowest, and the one that needs no thought.
void write_flat_sum(Writer& w, Piece result) {
  w.begin_step();
  if (w.rank() != 0) return w.send(0, input(w.whole()));
  std::vector<Piece> terms = {input(w.whole())};
  for (int peer = 1; peer < w.size(); ++peer) {
    terms.push_back(w.scratch(w.whole().count()));
    w.receive(peer, terms.back());
  }
  w.combine(std::move(terms), result);
}

Schedule flat_all_reduce(const CollectiveShape& shape) {
  Writer w(shape);
  write_flat_sum(w, output(w.whole()));
  w.begin_step();
  if (w.rank() != 0) w.receive(0, output(w.whole()));
  else
    for (int peer = 1; peer < w.size(); ++peer) w.send(peer, output(w.whole()));
  return w.finish();
}
Schedule flat_reduce_scatter(const CollectiveShape& shape) {
  Writer w(shape);
  const Piece sum = w.rank() == 0 ? w.scratch(w.whole().count()) : Piece{};
  write_flat_sum(w, sum);
  write_scatter(w, sum);
  return w.finish();
}
Schedule flat_all_gather(const CollectiveShape& shape) {
  Writer w(shape);
  write_own_shard(w);
  w.begin_step();
  if (w.rank() != 0) w.send(0, output(w.shard(w.rank())));
  else
    for (int peer = 1; peer < w.size(); ++peer) w.receive(peer, output(w.shard(peer)));
  w.begin_step();
  // What lies before and behind the rank's own shard, which it has.
  const auto rest_of = [&](int peer) {
    return std::array{Span{0, w.shard(peer).begin}, Span{w.shard(peer).end, w.whole().end}};
  };
  if (w.rank() != 0)
    for (const Span span : rest_of(w.rank())) w.receive(0, output(span));
  else
    for (int peer = 1; peer < w.size(); ++peer)
      for (const Span span : rest_of(peer)) w.send(peer, output(span));
  return w.finish();
}

}  // namespace

const Algorithm kFlat = {"flat",
                         "by rank, in one sum that is rounded once",
                         "rank 0 receives and sends (n - 1) S",
                         true,
                         false,
                         flat_all_reduce,
                         flat_reduce_scatter,
                         flat_all_gather};

}  // namespace keel::collectives
