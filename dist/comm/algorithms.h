#pragma once
// Algorithms of collectives: how n ranks add, share or distribute a tensor by messages between two of them.
//
// n: ranks; S: elements of the whole tensor; "sends" is per rank; f = (n - 1) / n. Every algorithm takes any number of
// ranks and of elements. Sources: Thakur, Rabenseifner and Gropp 2005 (Optimization of Collective Communication
// Operations in MPICH) for ring, tree and halving.

#include <span>
#include <string_view>
#include <vector>

#include "keel/dist/comm/schedule.h"

namespace keel {

// Where the calling rank stands, and on how much it works.
struct CollectiveShape {
  int rank = 0, size = 1;
  std::int64_t count = 0;      // elements of the whole tensor
  std::vector<int> node = {};  // of each rank; empty: all ranks share one
  // Elements of each rank's shard, or that go to it; empty: a shard is part({0, count}, size, rank).
  std::span<const std::int64_t> counts = {};
  std::span<const std::int64_t> incoming = {};  // that come from each rank, where `counts` go to them
};

// input (S) -> output (S), the sum of all ranks' inputs; the two may be one memory.
using AllReduce = Schedule (*)(const CollectiveShape&);
// input (S) -> output (the rank's shard)
using ReduceScatter = Schedule (*)(const CollectiveShape&);
// input (the rank's shard) -> output (S); the input may lie in its place of the output
using AllGather = Schedule (*)(const CollectiveShape&);

struct Algorithm {
  std::string_view name;
  std::string_view order;  // in which order numbers are added
  std::string_view cost;
  bool adds_at_once;  // all ranks' terms in one combination
  bool adds_pairs;    // its partial sums are those of CombineOp::pairwise_sum
  AllReduce all_reduce;
  ReduceScatter reduce_scatter;
  AllGather all_gather;
};

// Whether it can add along the tree of CombineOp::pairwise_sum: alone, or by its own partial sums.
inline bool adds_pairwise(const Algorithm& algorithm) { return algorithm.adds_at_once || algorithm.adds_pairs; }

// The one list of algorithms; `direct` is the first.
std::span<const Algorithm* const> algorithms();
// Throws an Error that names the nearest one.
const Algorithm& find_algorithm(std::string_view name);

// output (S) of the root -> output (S) of all. `tree` sends S to at most log2(n) ranks; `scattered` sends parts of it
// once around and then exchanges them, 2 f S at the root, for large tensors.
Schedule broadcast_tree(const CollectiveShape& shape, int root);
Schedule broadcast_scattered(const CollectiveShape& shape, int root);
// input (the rank's shard) -> output (S) of the root, and back: the root receives or sends f S.
Schedule gather(const CollectiveShape& shape, int root);
Schedule scatter(const CollectiveShape& shape, int root);
// input (S) -> output (S) of the root, their sum. `by_root` has the root add all alone, in the order of ranks, and
// receive (n - 1) S; `by_parts` is the algorithm's reduce_scatter and then a gather.
Schedule reduce_by_root(const CollectiveShape& shape, int root);
Schedule reduce_by_parts(const Algorithm& algorithm, const CollectiveShape& shape, int root);
// input (S) -> output (S): part i goes to rank i, and comes from there. With counts, output has what is incoming.
Schedule all_to_all(const CollectiveShape& shape);

}  // namespace keel
