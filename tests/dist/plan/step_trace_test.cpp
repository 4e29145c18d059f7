// The graph of a step: what each node computes or sends, and which nodes it waits for.

#include "keel/dist/plan/step_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "keel/dist/comm/schedule.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr std::int64_t kTokenWeight = 3, kWeights = kLarge * kLarge;

std::vector<TraceNode> trace_of(int number, int ranks, int micro_batches = 1, int rank = 0) {
  LargeNet model;
  ShardedOptions options = stage(number);
  options.policy = {.parameter = DType::bf16, .gradient = micro_batches > 1 ? DType::f32 : DType::bf16};
  options.micro_batches = micro_batches;
  return trace_step(lay_out(model, ranks), *make_adamw(), options, ranks, rank, kTokenWeight);
}

bool is_collective(const TraceNode& node) { return node.kind == TraceNode::Kind::collective; }

// The place of the last node of that name before `end`.
std::size_t last_of(const std::vector<TraceNode>& nodes, const std::string& name, std::size_t end) {
  for (std::size_t i = end; i-- > 0;)
    if (nodes[i].name == name) return i;
  ADD_FAILURE() << "there is no " << name;
  return 0;
}

bool has(const std::vector<std::size_t>& places, std::size_t place) {
  return std::find(places.begin(), places.end(), place) != places.end();
}

TEST(StepTrace, CountsOperationsOfMatricesAndBytesOfParameters) {
  for (const int number : {0, 1, 2, 3})
    for (const int ranks : {1, 2, 3, 4})
      for (const int micro_batches : {1, 3}) {
        const std::vector<TraceNode> nodes = trace_of(number, ranks, micro_batches, ranks - 1);
        LargeNet model;
        const std::int64_t whole = lay_out(model, ranks).front().padded;  // that of every unit
        const std::int64_t owned = number == 0 ? whole : part({0, whole}, ranks, ranks - 1).count();
        std::vector<int> passes(static_cast<std::size_t>(micro_batches) + 1);
        for (const TraceNode& node : nodes) {
          if (is_collective(node) || node.name == "update") continue;
          const bool is_forward = node.name.starts_with("forward ");
          EXPECT_TRUE(is_forward || node.name.starts_with("backward ")) << node.name;
          EXPECT_EQ(node.operations, (is_forward ? 2 : 4) * kTokenWeight * kWeights) << node.name;
          EXPECT_EQ(node.bytes, 2 * whole) << node.name;
          ++passes.at(static_cast<std::size_t>(node.micro_batch));
        }
        EXPECT_EQ(passes[0], 0);
        for (std::size_t i = 1; i < passes.size(); ++i) EXPECT_EQ(passes[i], 8) << "four units, both ways";
        const std::size_t update = last_of(nodes, "update", nodes.size());
        EXPECT_EQ(nodes[update].operations, 0);
        EXPECT_EQ(nodes[update].micro_batch, micro_batches);
        EXPECT_EQ(nodes[update].bytes, 4 * 2 * owned);
        const auto collectives = std::count_if(nodes.begin(), nodes.end(), is_collective);
        EXPECT_EQ(collectives > 0, ranks > 1);
      }
}

TEST(StepTrace, NodesComeAfterThoseThatTheyWaitForAndCollectivesOneAfterAnother) {
  for (const int number : {0, 1, 2, 3})
    for (const int ranks : {1, 3, 4}) {
      const std::vector<TraceNode> nodes = trace_of(number, ranks, 2);
      std::optional<std::size_t> compute, collective;
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        for (const auto* before : {&nodes[i].needs, &nodes[i].follows})
          for (const std::size_t place : *before) EXPECT_LT(place, i);
        std::optional<std::size_t>& last = is_collective(nodes[i]) ? collective : compute;
        const auto& chain = is_collective(nodes[i]) ? nodes[i].follows : nodes[i].needs;
        if (last) { EXPECT_TRUE(has(chain, *last)) << nodes[i].name; }
        last = i;
      }
    }
}

TEST(StepTrace, PassesNeedTheirGathersReductionsTheirPassesAndTheUpdateAllReductions) {
  for (const int number : {0, 1, 2, 3}) {
    const std::vector<TraceNode> nodes = trace_of(number, 4);
    const std::size_t update = last_of(nodes, "update", nodes.size());
    for (const char* layer : {"layers.0", "layers.1", "layers.2", "layers.3"}) {
      const auto place = [&](const char* what, std::size_t end) { return last_of(nodes, concat(what, layer), end); };
      const std::size_t backward = place("backward ", nodes.size()), reduce = place("reduce ", nodes.size());
      const std::vector<std::size_t>& needs = nodes[reduce].needs;  // its pass, or a later one of its bucket
      EXPECT_TRUE(std::any_of(needs.begin(), needs.end(), [&](std::size_t each) {
        return each >= backward && nodes[each].name.starts_with("backward ");
      })) << layer;
      EXPECT_TRUE(has(nodes[update].needs, reduce)) << layer;
      EXPECT_EQ(nodes[reduce].collective.width, 2);
      if (number == 3) {
        for (const std::size_t pass : {place("forward ", nodes.size()), backward})
          EXPECT_TRUE(has(nodes[pass].needs, place("gather ", pass))) << layer;
      } else if (number > 0) {
        const std::size_t gather = place("gather ", nodes.size());
        EXPECT_GT(gather, update);
        EXPECT_TRUE(has(nodes[gather].needs, update)) << layer;
      }
    }
    EXPECT_EQ(std::count_if(nodes.begin() + static_cast<std::ptrdiff_t>(update), nodes.end(), is_collective),
              number == 1 || number == 2 ? 4 : 0);
  }
}

// Units of two megabytes: the first bucket closes with the unit that backward meets first, the next with the last one.
// Where gradients are sharded each unit is a bucket.
// Of two micro-batches, which gather it in forward and again in backward.
TEST(StepTrace, AUnitIsGatheredFromAllRanksOnceAndThenFromItsSubgroup) {
  LargeNet model;
  ShardedOptions options = stage(3);
  options.micro_batches = 2;
  options.sharding.subgroup = 2;
  options.sharding.secondary = true;
  std::vector<Axis> axes;
  for (const TraceNode& node : trace_step(lay_out(model, 4), *make_adamw(), options, 4, 0, kTokenWeight))
    if (node.name == "gather layers.1") axes.push_back(node.collective.axis);
  EXPECT_EQ(axes, (std::vector{Axis::shards, Axis::inside, Axis::inside, Axis::inside}));
}

TEST(StepTrace, AReductionWaitsForThePassThatFillsItsBucket) {
  for (const int number : {0, 1, 2, 3}) {
    const std::vector<TraceNode> nodes = trace_of(number, 4);
    for (const char* layer : {"layers.0", "layers.1", "layers.2", "layers.3"}) {
      const std::string filled_by = number >= 2 || layer == std::string("layers.3") ? layer : "layers.0";
      const std::size_t pass = last_of(nodes, "backward " + filled_by, nodes.size());
      EXPECT_TRUE(has(nodes[last_of(nodes, concat("reduce ", layer), nodes.size())].needs, pass))
          << layer << ", stage " << number;
    }
  }
}

}  // namespace
}  // namespace keel
