// Plans against what the engine counts, and against the collectives that it asks for.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <mutex>

#include "keel/autograd/checkpoint.h"
#include "keel/dist/comm/decorators.h"
#include "keel/dist/plan/step_trace.h"
#include "keel/optim/elementwise.h"
#include "tests/dist/parallel/observing_net.h"
#include "tests/dist/parallel/planned_counts.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/kernels/every_rule.h"

namespace keel {
namespace {

using namespace keel::testing;

// What a model does in a step, so that one function measures several.
struct Case {
  std::string name;
  bool recomputes;  // forgets activations, and with them that a unit is the last
  std::function<std::unique_ptr<Module>()> make;
  std::function<Variable(Module&, const Tensor&)> loss;
};

// Layers between two uses of the root's weight; half of them frozen.
struct Rooted : Module {
  Linear head{kWidth, kWidth};
  std::vector<UnitLayer> layers = std::vector<UnitLayer>(4);
  bool recomputes;
  Rooted(bool freezes, bool recomputes, bool adapts = false) : recomputes(recomputes) {
    for (UnitLayer& layer : layers) {
      if (!adapts) continue;
      layer.linear.weight.set_trainable(false);
      layer.linear.bias.set_trainable(false);
      layer.linear.add_adapter("", 3, 2, 0);
    }
    if (!freezes) return;
    for (const std::size_t i : {1, 3}) {
      layers[i].linear.weight.set_trainable(false);
      layers[i].linear.bias.set_trainable(false);
    }
  }
  Variable operator()(const Tensor& x) const {
    const Scope scope(*this);
    Variable y = head(Variable(x));
    for (const UnitLayer& layer : layers)
      y = recomputes ? checkpoint([&](const Variable& in) { return layer(in); }, y) : layer(y);
    return head(y);
  }
  void visit(Visitor& v) override {
    v("head", head);
    v("layers", layers);
  }
};

template <class Model, class... Arguments>
Case case_of(std::string name, bool recomputes, Arguments... arguments) {
  return {std::move(name), recomputes, [=] { return std::unique_ptr<Module>(std::make_unique<Model>(arguments...)); },
          [](Module& model, const Tensor& x) { return mean(dynamic_cast<Model&>(model)(x)); }};
}

std::vector<Case> cases() {
  return {case_of<UnitNet>("a chain", false),
          case_of<Rooted>("a root around units", false, false, false),
          case_of<Rooted>("half of it frozen", false, true, false),
          case_of<Rooted>("recomputed", true, false, true),
          case_of<Rooted>("adapted", false, false, false, true),
          case_of<Rooted>("adapted and recomputed", true, false, true, true)};
}

struct Variant {
  std::string name;
  std::function<void(ShardedOptions&)> set;
  bool compresses = false;
};

std::vector<Variant> variants() {
  using Type = Compression::Type;
  return {
      {"plain", [](ShardedOptions&) {}},
      {"each backward", [](ShardedOptions& o) { o.sharding.accumulation = Accumulation::each_backward; }},
      {"not resharded", [](ShardedOptions& o) { o.sharding.reshard_after_forward = false; }},
      {"last unit kept", [](ShardedOptions& o) { o.sharding.keep_last_unit = true; }},
      {"persistent", [](ShardedOptions& o) { o.sharding.persistence_threshold = 1 << 20; }},
      {"in groups of two", [](ShardedOptions& o) { o.sharding.group = 2; }},
      {"in groups of one", [](ShardedOptions& o) { o.sharding.group = 1; }},
      {"int8 across two", [](ShardedOptions& o) { o.sharding.group = 2, o.compression.type = Type::int8; }, true},
      {"top 1 % across", [](ShardedOptions& o) { o.sharding.group = 1, o.compression.type = Type::top_k; }, true},
      {"nothing prefetched", [](ShardedOptions& o) { o.sharding.prefetch = 0; }},
      {"prefetch 3", [](ShardedOptions& o) { o.sharding.prefetch = 3; }},
      {"without overlap", [](ShardedOptions& o) { o.sharding.overlap = false; }},
      {"bf16", [](ShardedOptions& o) { o.policy = PrecisionPolicy::of(DType::bf16); }},
      {"bf16, wire f32",
       [](ShardedOptions& o) {
         o.policy = PrecisionPolicy::of(DType::bf16);
         o.wire = DType::f32;
       }},
      {"int8", [](ShardedOptions& o) { o.compression = {.type = Compression::Type::int8}; }, true},
      {"int4 in codes of int8",
       [](ShardedOptions& o) {
         o.compression = {.type = Compression::Type::int4};
         o.sharding.weight_code = WeightCode::int8;
       },
       true},
      {"secondary shards",
       [](ShardedOptions& o) {
         o.sharding.subgroup = 2;
         o.sharding.secondary = true;
       },
       true},
      {"all of ZeRO++",
       [](ShardedOptions& o) {
         o.policy = PrecisionPolicy::of(DType::bf16);
         o.compression = {.type = Compression::Type::qgz};
         o.sharding.subgroup = 2;
         o.sharding.secondary = true;
         o.sharding.weight_code = WeightCode::int4;
       },
       true},
      {"some stay, in codes",
       [](ShardedOptions& o) {
         o.sharding.persistence_threshold = 5000;
         o.sharding.weight_code = WeightCode::int8;
       },
       true},
      {"top 3 %", [](ShardedOptions& o) { o.compression = {.type = Compression::Type::top_k, .fraction = 0.03}; },
       true},
      {"top 90 % of bf16",
       [](ShardedOptions& o) {
         o.policy = PrecisionPolicy::of(DType::bf16);
         o.compression = {.type = Compression::Type::top_k, .fraction = 0.9};
       },
       true},
      {"int8 across groups",
       [](ShardedOptions& o) {
         o.compression = {.type = Compression::Type::int8};
         o.sharding.group = 2;
       },
       true},
      {"of 2 virtual ranks", [](ShardedOptions& o) { o.sharding.virtual_ranks = 2; }, true},
      {"of 8 virtual ranks", [](ShardedOptions& o) { o.sharding.virtual_ranks = 8; }},
      {"sent as fp16", [](ShardedOptions& o) { o.compression = {.type = Compression::Type::fp16}; }, true},
      {"rank 2", [](ShardedOptions& o) { o.compression = {.type = Compression::Type::power_sgd, .rank = 2}; }, true}};
}

// "all_gather of 4160 x 4".
std::string to_text(CollectiveKind kind, std::int64_t count, std::int64_t width) {
  return concat(name_of(kind), " of ", count, " x ", width);
}

// A collective of parameters or gradients, as the engine asks for it; "" for the ranks' words beside them.
std::string asked_text(const Collective& asked) {
  const bool is_data = asked.dtype() == DType::f32 || asked.dtype() == DType::bf16 || asked.dtype() == DType::f16;
  return is_data ? to_text(asked.kind, asked.count(), static_cast<std::int64_t>(size_of(asked.dtype()))) : "";
}

// The collectives of a trace in their order, which must be those of the plan.
std::vector<std::string> collectives_of(const std::vector<TraceNode>& trace, const RankPlan& plan) {
  std::vector<std::string> all, planned;
  for (const TraceNode& node : trace) {
    const PlannedCollective& each = node.collective;
    if (node.kind == TraceNode::Kind::collective) all.push_back(to_text(each.kind, each.count, each.width));
  }
  for (const PlannedCollective& each : plan.collectives) EXPECT_GE(each.times, 1) << "a collective that never happens";
  for (const PlannedCollective& each : plan.collectives)
    planned.insert(planned.end(), static_cast<std::size_t>(each.times), to_text(each.kind, each.count, each.width));
  std::vector<std::string> sorted = all;
  std::sort(sorted.begin(), sorted.end());
  std::sort(planned.begin(), planned.end());
  EXPECT_EQ(sorted, planned);
  return all;
}

// Trains two steps and compares the second one's counts, on each rank, with the rank's plan.
void expect_as_planned(const std::string& what, const Case& c, int ranks, const ShardedOptions& options,
                       const ElementwiseOptions& made) {
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& direct) {
    std::vector<std::string> asked;
    WatchedCommunicator comm(direct, [&](std::int64_t, const Collective& collective) {
      if (const std::string text = asked_text(collective); !text.empty()) asked.push_back(text);
    });
    const auto optimizer = [&] { return make_elementwise("test", made); };
    const Context context = testing::context(1);
    const auto planned = c.make(), model = c.make();
    const std::vector<FlatBuffer> layout =
        lay_out(*planned, shard_ranks(options, ranks), optimizer()->requirements().block);
    const BufferCount buffers = count_buffers(*planned);
    const RankPlan plan = plan_rank(layout, *optimizer(), options, ranks, comm.rank(), {.buffers = buffers});
    const std::vector<TraceNode> trace = trace_step(layout, *optimizer(), options, ranks, comm.rank(), 3);
    Sharded engine(*model, context, comm, optimizer(), options);
    PlannedCounts counts(plan, engine);
    const auto step = [&] {
      asked.clear();
      for (int micro = 0; micro < options.micro_batches * engine.virtual_ranks(); ++micro) {
        const Tensor x = uniform_tensor(context, {3, kWidth}, 5, options.policy.parameter);
        engine.backward(c.loss(*model, x), {.last = (micro + 1) % options.micro_batches == 0});
      }
      engine.step(1e-3);
      for (const auto& unit : engine.units()) unit->parameters().wait_gathered();
    };
    counts.expect_of(step, mutex, what);
    const std::lock_guard lock(mutex);
    const std::vector<std::string> traced = collectives_of(trace, plan);
    // Codes are no floats, and what buffers observe is no gradient.
    if (!options.compression.kind().codec && options.sharding.weight_code == WeightCode::exact &&
        buffers.moving_numbers == 0) {
      EXPECT_EQ(traced, asked);
    }
  });
}

// By the places of a case and a variant.
class PlanCountsOf : public ::testing::TestWithParam<std::pair<std::size_t, std::size_t>> {
 public:
  static std::vector<ParamType> all() {
    const std::vector<Case> cases = keel::cases();
    const std::vector<Variant> variants = keel::variants();
    std::vector<ParamType> pairs;
    for (std::size_t c = 0; c < cases.size(); ++c)
      for (std::size_t v = 0; v < variants.size(); ++v) {
        if (cases[c].recomputes && variants[v].name == "last unit kept") continue;
        if (variants[v].compresses && cases[c].name != "a root around units") continue;
        pairs.emplace_back(c, v);
      }
    return pairs;
  }
};
INSTANTIATE_TEST_SUITE_P(Each, PlanCountsOf, ::testing::ValuesIn(PlanCountsOf::all()), [](const auto& info) {
  std::string name = concat(cases()[info.param.first].name, ' ', variants()[info.param.second].name);
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

TEST_P(PlanCountsOf, IsWhatTheEngineCountsInEveryStageAndRankCount) {
  const Case c = cases()[GetParam().first];
  const Variant variant = variants()[GetParam().second];
  for (const int number : {0, 1, 2, 3})
    for (const int ranks : {1, 2, 3, 4})
      for (const int micro_batches : {1, 3}) {
        ShardedOptions options = stage(number);
        variant.set(options);
        if (options.sharding.group > 0 && ranks % options.sharding.group != 0) continue;
        if (options.sharding.subgroup > 0 && ranks % options.sharding.subgroup != 0) continue;
        if (options.sharding.virtual_ranks > 0 && (ranks == 3 || ranks > options.sharding.virtual_ranks)) continue;
        options.micro_batches = micro_batches;
        expect_as_planned(concat(c.name, ", ", variant.name), c, ranks, options,
                          {.settings = AdamSettings{.decoupled = true}});
      }
}

TEST(PlanCounts, KnowsTheStateOfEveryOptimizer) {
  for (const RuleCase& rule : every_rule())
    for (const int number : {0, 2})
      for (const DType dtype : {DType::bf16, DType::f32}) {
        ShardedOptions options = stage(number);
        options.policy = PrecisionPolicy::of(dtype);
        expect_as_planned(rule.name, cases().front(), 3, options, {.settings = rule.settings});
      }
}

TEST(PlanCounts, KnowsWhatOptimizersMeasureAndTransformInGroups) {
  for (const RuleCase& rule : every_rule())
    for (const int group : {1, 2, 4}) {
      if (norm_count(rule.settings) == 0 && !std::holds_alternative<MuonSettings>(rule.settings)) continue;
      ShardedOptions options = stage(3);
      options.sharding.group = group;
      expect_as_planned(concat(rule.name, ", groups of ", group), cases().front(), 4, options,
                        {.settings = rule.settings});
    }
}

TEST(PlanCounts, CountsBuffersWhichAreWholeOnEveryRank) {
  const Case observing = case_of<ObservingNet>("batch norm", false);
  const BufferCount count = count_buffers(*observing.make());
  EXPECT_EQ(count.numbers, 2 * kWidth + 3);
  EXPECT_EQ(count.moving_numbers, 2 * kWidth);
  for (const int number : {0, 1, 2, 3})
    for (const int ranks : {1, 2, 3, 4})
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const int group : {0, 2}) {
          if (group > 0 && ranks % group != 0) continue;
          ShardedOptions options = stage(number);
          options.policy = PrecisionPolicy::of(dtype);
          options.sharding.group = group;
          options.micro_batches = 2;
          expect_as_planned(concat("batch norm in ", dtype, ", group ", group), observing, ranks, options,
                            {.settings = AdamSettings{.decoupled = true}});
        }
}

}  // namespace
}  // namespace keel
