#include "keel/dist/comm/algorithms.h"

#include "keel/dist/comm/algorithms/list.h"
#include "keel/dist/comm/algorithms/writer.h"
#include "keel/runtime/error.h"

namespace keel {

using namespace collectives;

std::span<const Algorithm* const> algorithms() {
  static constexpr const Algorithm* kAll[] = {&kDirect, &kRing, &kHalving, &kTree, &kHierarchical, &kFlat};
  return kAll;
}

const Algorithm& find_algorithm(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->name == name) return *algorithm;
    names.push_back(algorithm->name);
  }
  const std::string near = nearest(name, names);
  throw Error(concat("there is no algorithm '", name, "' of collectives",
                     near.empty() ? "" : concat(", did you mean '", near, "'?")));
}

Schedule broadcast_scattered(const CollectiveShape& shape, int root) {
  Writer w(shape);
  w.begin_step();
  if (w.rank() != root) w.receive(root, output(w.shard(w.rank())));
  else
    for (int peer = 0; peer < w.size(); ++peer)
      if (peer != root) w.send(peer, output(w.shard(peer)));
  // The root has all: nobody sends to it.
  w.begin_step();
  for (int peer = 0; peer < w.size(); ++peer) {
    if (peer == w.rank()) continue;
    if (peer != root) w.send(peer, output(w.shard(w.rank())));
    if (w.rank() != root) w.receive(peer, output(w.shard(peer)));
  }
  return w.finish();
}

Schedule all_to_all(const CollectiveShape& shape) {
  Writer w(shape);
  KEEL_CHECK(!shape.counts.empty() || shape.count % shape.size == 0, "all_to_all among ", shape.size,
             " ranks cannot cut ", shape.count, " elements into equal parts");
  const Cut incoming(shape.count, shape.size, shape.incoming);
  w.begin_step();
  w.combine({input(w.shard(w.rank()))}, output(incoming.of(w.rank())));
  for (int i = 1; i < w.size(); ++i) {
    const int peer = (w.rank() + i) % w.size();
    w.send(peer, input(w.shard(peer)));
    w.receive(peer, output(incoming.of(peer)));
  }
  return w.finish();
}

}  // namespace keel
