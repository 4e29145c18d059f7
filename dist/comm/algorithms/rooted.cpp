// Collectives of which one rank, the root, gives or gets all.

#include "keel/dist/comm/algorithms/list.h"
#include "keel/dist/comm/algorithms/writer.h"

namespace keel {

using namespace collectives;

Schedule gather(const CollectiveShape& shape, int root) {
  Writer w(shape);
  w.begin_step();
  const Piece own = input(alone(w.shard(w.rank())));
  if (w.rank() != root) {
    w.send(root, own);
    return w.finish();
  }
  for (int peer = 0; peer < w.size(); ++peer)
    if (peer != root) w.receive(peer, output(w.shard(peer)));
  w.combine({own}, output(w.shard(root)));
  return w.finish();
}

Schedule scatter(const CollectiveShape& shape, int root) {
  Writer w(shape);
  w.begin_step();
  const Piece own = output(alone(w.shard(w.rank())));
  if (w.rank() != root) {
    w.receive(root, own);
    return w.finish();
  }
  for (int peer = 0; peer < w.size(); ++peer)
    if (peer != root) w.send(peer, input(w.shard(peer)));
  w.combine({input(w.shard(root))}, own);
  return w.finish();
}

Schedule reduce_by_root(const CollectiveShape& shape, int root) {
  Writer w(shape);
  w.begin_step();
  if (w.rank() != root) {
    w.send(root, input(w.whole()));
    return w.finish();
  }
  std::vector<Piece> terms;
  for (int peer = 0; peer < w.size(); ++peer) {
    terms.push_back(peer == root ? input(w.whole()) : w.scratch(w.whole().count()));
    if (peer != root) w.receive(peer, terms.back());
  }
  w.combine(std::move(terms), output(w.whole()));
  return w.finish();
}

Schedule reduce_by_parts(const Algorithm& algorithm, const CollectiveShape& shape, int root) {
  Schedule schedule = algorithm.reduce_scatter(shape);
  const Cut cut(shape.count, shape.size);
  const std::int64_t own = cut.of(shape.rank).count();
  // Where the algorithm's output, the rank's own shard, comes to lie.
  Piece shard = output(cut.of(shape.rank));
  if (shape.rank != root) {
    shard = {Place::scratch, {schedule.scratch, schedule.scratch + own}};
    schedule.scratch += own;
  }
  const auto move = [&](Piece& piece) {
    if (piece.place == Place::output) piece = {shard.place, moved(piece.span, shard.span.begin)};
  };
  for (Step& step : schedule.steps) {
    for (Transfer& transfer : step.sends) move(transfer.piece);
    for (Transfer& transfer : step.receives) move(transfer.piece);
    for (Combination& combination : step.combinations) {
      for (Piece& term : combination.terms) move(term);
      move(combination.result);
    }
  }
  Step& last = schedule.steps.emplace_back();
  if (shape.rank != root && own != 0) last.sends.push_back({root, shard});
  for (int peer = 0; peer < shape.size && shape.rank == root; ++peer)
    if (peer != root && cut.of(peer).count() != 0) last.receives.push_back({peer, output(cut.of(peer))});
  return schedule;
}

}  // namespace keel
