// Acceptance check 7: what a call sends, as communicators count it, against closed formulas.
//
// S: bytes of the whole tensor, n: ranks, of which g share a node; n divides S, so that shards are equal.

#include <gtest/gtest.h>

#include "keel/dist/comm/regroup.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/dist/lab/measurement.h"
#include "tests/support.h"

namespace keel::lab {
namespace {

constexpr std::int64_t kElements = 840 * 8;  // which 1 to 8 divide
constexpr std::int64_t kS = kElements * 4;

Wire wire_of(Communicator& ranks, const std::string& algorithm, const Exercise& exercise, bool in_place, bool shared,
             std::vector<int> nodes = {}) {
  const auto measured = ranks.regroup({.algorithm = algorithm, .shared_memory = shared, .nodes = std::move(nodes)});
  const Context context = testing::context(1);
  const Tensor a = zeros(context, {kElements}), b = zeros(context, {kElements});
  return count_wire(*measured, ranks, make_call(exercise, ranks, kElements, in_place, a, b));
}

// Halves of a and b ranks: each of the a sends what the b will own, and the other way round; then both go on.
std::int64_t halving_total(std::int64_t k, int n) {
  if (k < 2) return 0;
  const std::int64_t a = (k + 1) / 2, b = k / 2;
  return 2 * a * b * (kS / n) + halving_total(a, n) + halving_total(b, n);
}
// Every rank but the root hands on what it and those above it have: sums whole, shards one by one.
std::int64_t tree_gather_total(int n) {
  std::int64_t shards = 0;
  for (int rank = 1; rank < n; ++rank) {
    const int bit = rank & -rank;
    shards += std::min(bit, n - rank);
  }
  return shards * (kS / n);
}

// What all ranks send together. An all_reduce is a reduce_scatter and an all_gather, but for flat and tree.
std::int64_t total(const std::string& algorithm, CollectiveKind kind, int n) {
  const std::int64_t around = (n - 1) * kS, scatter = (n - 1) * (kS / n);
  if (algorithm == "halving") return (kind == CollectiveKind::all_reduce ? 2 : 1) * halving_total(n, n);
  if (algorithm == "flat" || algorithm == "tree") {
    if (kind == CollectiveKind::all_reduce) return 2 * around;
    if (kind == CollectiveKind::reduce_scatter) return around + scatter;
    // flat: shards to the root, and back all but the own one; tree: all, also what a rank has.
    return algorithm == "flat" ? scatter + (n - 1) * (kS - kS / n) : tree_gather_total(n) + around;
  }
  return kind == CollectiveKind::all_reduce ? 2 * around : around;
}

class WireBytes : public ::testing::TestWithParam<const char*> {};

TEST_P(WireBytes, AreThoseOfTheFormulaForOneToEightRanks) {
  const std::string algorithm = GetParam();
  for (int n = 1; n <= 8; ++n)
    run_ranks(n, [&](Communicator& ranks) {
      for (const char* name : {"all_reduce", "reduce_scatter", "all_gather"}) {
        const Exercise& exercise = find_exercise(name);
        for (const bool in_place : {false, true})
          for (const bool shared : {false, true}) {
            const Wire wire = wire_of(ranks, algorithm, exercise, in_place, shared);
            EXPECT_EQ(wire.total, total(algorithm, exercise.kind, n)) << name << " among " << n;
            EXPECT_EQ(wire.between, 0);
            EXPECT_LE(wire.inside, wire.total);
            EXPECT_GE(wire.inside * n, wire.total);
          }
      }
    });
}
INSTANTIATE_TEST_SUITE_P(Algorithms, WireBytes,
                         ::testing::Values("direct", "flat", "ring", "tree", "halving", "hierarchical"),
                         [](const auto& info) { return std::string(info.param); });

TEST(WireBytes, OfWhatHasNoAlgorithmsAreThoseOfTheFormula) {
  for (int n = 2; n <= 8; ++n)
    run_ranks(n, [&](Communicator& ranks) {
      for (const bool shared : {false, true}) {
        EXPECT_EQ(wire_of(ranks, "direct", find_exercise("all_to_all"), false, shared).total, (n - 1) * kS);
        EXPECT_EQ(wire_of(ranks, "direct", find_exercise("sendrecv"), false, shared).total, n * kS);
        EXPECT_EQ(wire_of(ranks, "direct", find_exercise("broadcast"), true, shared).total, (n - 1) * kS);
      }
    });
}

// m nodes of g ranks: every shard's sum crosses to its owner from each other node, and comes back to each of them once.
TEST(WireBytes, BetweenNodesAreLeastOfTheHierarchicalAlgorithm) {
  for (const auto& [n, g] : {std::pair(4, 2), std::pair(6, 2), std::pair(6, 3), std::pair(8, 4)})
    run_ranks(n, [n = n, g = g](Communicator& ranks) {
      std::vector<int> nodes;
      for (int r = 0; r < n; ++r) nodes.push_back(r / g);
      const int m = n / g;
      const Exercise& all_reduce = find_exercise("all_reduce");
      const Wire hierarchical = wire_of(ranks, "hierarchical", all_reduce, true, true, nodes);
      EXPECT_EQ(hierarchical.between, 2 * (m - 1) * kS / n);
      EXPECT_EQ(hierarchical.inside, 2 * (g - 1) * m * kS / n);
      const Wire direct = wire_of(ranks, "direct", all_reduce, true, true, nodes);
      EXPECT_EQ(direct.between, 2 * (n - g) * kS / n);
      EXPECT_EQ(direct.inside, 2 * (g - 1) * kS / n);
      // In a ring only a node's last rank sends to another node.
      const Wire ring = wire_of(ranks, "ring", all_reduce, true, true, nodes);
      EXPECT_EQ(ring.between, 2 * (n - 1) * kS / n);
    });
}

}  // namespace
}  // namespace keel::lab
