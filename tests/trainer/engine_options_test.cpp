// What becomes of a configuration in the engine's options, groups, curves and notes.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "keel/nn/layers.h"
#include "keel/optim/optimizer.h"
#include "keel/runtime/memory_limit.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/learning_rate.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

struct OwnUnit : Linear {
  using Linear::Linear;
  bool is_unit() const override { return true; }
};

struct TwoLayers : Module {
  OwnUnit front{3, 2}, back{50, 40};
  void visit(Visitor& v) override {
    v("front", front);
    v("back", back);
  }
};

Config with_keys(const TemporaryFolder& place, const std::vector<std::string>& keys) {
  return small_run(place, "run", keys);
}

TEST(EngineOptions, LieWhereTheirKeysOrElseTheStrategySay) {
  const TemporaryFolder place;
  const auto places = [&](const std::vector<std::string>& keys) {
    TwoLayers model;
    const ShardingOptions sharding = engine_options(with_keys(place, keys), 1, model).sharding;
    const auto word = [](Residence residence) {
      return residence == Residence::device ? "device" : residence == Residence::host ? "host" : "file";
    };
    const std::string folder = sharding.offload_folder == place / "run" ? "RUN" : sharding.offload_folder;
    return concat(word(sharding.offload_optimizer), ' ', word(sharding.offload_parameters), ' ', folder);
  };
  EXPECT_EQ(places({"strategy=zero3-bf16"}), "device device ");
  EXPECT_EQ(places({"strategy=zero3-bf16-cpu"}), "host device ");
  EXPECT_EQ(places({"strategy=zero3-bf16-cpu-nvme"}), "host file RUN");
  EXPECT_EQ(places({"strategy=zero3-bf16-nvme-cpu", "sharding.offload_folder=/a"}), "file host /a");
  EXPECT_EQ(places({"strategy=zero3-bf16-cpu", "sharding.offload_folder=/a"}), "host device /a");
  EXPECT_EQ(places({"strategy=zero3-bf16", "sharding.offload_optimizer=file"}), "file device RUN");
  EXPECT_EQ(places({"strategy=zero3-bf16-none-cpu", "sharding.offload_optimizer=host"}), "host host ");
}

TEST(EngineOptions, HaveTheNumbersAndGroupsOfTheConfiguration) {
  const TemporaryFolder place;
  TwoLayers model;
  const auto options = [&](const std::vector<std::string>& keys) {
    return engine_options(with_keys(place, keys), 3, model);
  };
  for (const auto& [strategy, dtype] :
       {std::pair("ddp-fp32", DType::f32), {"ddp-bf16", DType::bf16}, {"ddp-fp16", DType::f16}}) {
    const PrecisionPolicy policy = PrecisionPolicy::of(dtype);
    const ShardedOptions made = options({concat("strategy=", strategy)});
    EXPECT_EQ(made.policy.parameter, policy.parameter) << strategy;
    EXPECT_EQ(made.policy.gradient, policy.gradient) << strategy;
    EXPECT_EQ(made.micro_batches, 3);
    EXPECT_EQ(made.sharding.group, 0);
    EXPECT_FALSE(made.strategy);
  }
  const std::pair<const char*, DType> numbers[] = {{"fp32", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}};
  for (const auto& [parameter, dtype] : numbers)
    for (const auto& [gradient, sum] : numbers) {
      const std::vector<std::string> keys = {concat("strategy=ddp-", parameter),
                                             concat("sharding.gradient=", gradient)};
      if (sum == dtype || sum == DType::f32) {
        EXPECT_EQ(options(keys).policy.gradient, sum) << keys[0] << ' ' << keys[1];
        continue;
      }
      const std::string told = error_of([&] { options(keys); });
      EXPECT_EQ(told, concat("command line, '", keys[1], "': sharding.gradient: backward computes in ", dtype,
                             ", and adds gradients up in ", dtype, dtype == DType::f32 ? "" : " or f32", ", not in ",
                             sum, "; leave it out, or compute in ", sum));
      ShardedOptions engine;
      engine.policy = {.parameter = dtype, .gradient = sum};
      EXPECT_EQ(concat("command line, '", keys[1],
                       "': ", error_of([&] { Sharded(model, Context::create({.threads = 1}), make_sgd(), engine); })),
                told);
    }
  // Where the strategy is not said, the engine is the first to know the numbers.
  EXPECT_EQ(options({"strategy=auto", "sharding.gradient=bf16"}).policy.gradient, DType::bf16);
  EXPECT_EQ(options({"outer.type=local_sgd"}).sharding.group, 1);
  EXPECT_EQ(options({"outer.type=local_sgd", "sharding.group=3"}).sharding.group, 3);
  EXPECT_TRUE(options({"outer.type=local_sgd"}).strategy);
}

TEST(EngineOptions, AreToldOfGroupsThatFitNothing) {
  const TemporaryFolder place;
  TwoLayers model;
  const auto told = [&](const std::string& groups) {
    const Config config = with_keys(place, {concat("optimizer.groups=", groups)});
    std::string text;
    const std::string refusal = error_of([&] { text = check_groups(config, model); });
    return refusal.empty() ? text : concat("refused: ", refusal);
  };
  EXPECT_EQ(told("[]"), "");
  EXPECT_EQ(told("[{match: bias}, {match: front.weight}]"), "");
  EXPECT_EQ(told("[{match: \"bias|wieght\"}]"),
            "optimizer.groups: no parameter's name contains 'wieght'; did you mean 'weight'?");
  EXPECT_EQ(told("[{match: \"bias|wieght\"}, {match: \"zzzzzzzz|front\"}]"),
            "optimizer.groups: no parameter's name contains 'wieght'; did you mean 'weight'?, no parameter's name "
            "contains 'zzzzzzzz'; they are like front.weight");
  EXPECT_EQ(told("[{match: frnt}]"), "refused: optimizer.groups: 'frnt' fits no parameter; did you mean 'front'?");
  EXPECT_EQ(told("[{match: zzzzzzzz}]"),
            "refused: optimizer.groups: 'zzzzzzzz' fits no parameter; they are like front.weight");
}

TEST(EngineOptions, OfGradientsThatAreKeptWholeAreToldWithTheirBytes) {
  const TemporaryFolder place;
  const auto note = [&](int n, std::int64_t micro_batches, const std::vector<std::string>& keys) {
    std::string text;
    run_ranks(n, [&](Communicator& ranks) {
      TwoLayers model;
      const Sharded engine(model, Context::create({.threads = 1}), ranks, make_sgd(),
                           engine_options(with_keys(place, keys), micro_batches, model));
      if (ranks.rank() != 0) return;
      text = accumulation_note(engine);
      std::int64_t all = 0, largest = 0;
      for (const auto& unit : engine.units()) {
        all += unit->split().gradient_bytes();
        largest = std::max(largest, unit->split().gradient_bytes());
      }
      EXPECT_LT(largest, all);
      const auto size = [](std::int64_t bytes) { return binary_size(static_cast<double>(bytes)); };
      if (!text.empty()) {
        EXPECT_EQ(text,
                  concat("each rank keeps its whole gradients, ", size(all), ", until the last of ", micro_batches,
                         " micro-batches; sharding.accumulation=each_backward keeps one or two units of them, of ",
                         size(largest), " at most, and sends more"));
      }
    });
    return text;
  };
  EXPECT_NE(note(2, 4, {"strategy=zero2-fp32"}), "");
  EXPECT_NE(note(2, 2, {"strategy=zero3-fp32"}), "");
  EXPECT_EQ(note(1, 4, {"strategy=zero2-fp32"}), "");
  EXPECT_EQ(note(2, 1, {"strategy=zero2-fp32"}), "");
  EXPECT_EQ(note(2, 4, {"strategy=zero1-fp32"}), "");
  EXPECT_EQ(note(2, 4, {"strategy=ddp-fp32"}), "");
  EXPECT_EQ(note(2, 4, {"strategy=zero2-fp32", "sharding.accumulation=each_backward"}), "");
  EXPECT_EQ(note(2, 4, {"strategy=zero2-fp32", "sharding.virtual_ranks=2"}), "");
  // Of its group.
  EXPECT_EQ(note(2, 4, {"strategy=zero2-fp32", "outer.type=diloco"}), "");
  EXPECT_EQ(note(2, 4, {"strategy=zero3-fp32", "sharding.group=1"}), "");
  EXPECT_NE(note(4, 4, {"strategy=zero2-fp32", "outer.type=diloco", "sharding.group=2"}), "");
}

TEST(EngineCurves, AreScaledByAFactorOfTheRateAlone) {
  const TemporaryFolder place;
  const Context context = Context::create({.threads = 1});
  const Config config = with_keys(place, {"optimizer.type=SGD", "optimizer.lr=0.5", "scheduler={type: OneCycleLR}"});
  const LearningRate rates(config);
  const StepCurves whole = make_curves(config, context), half = scaled(whole, 0.5), same = scaled(whole, 1);
  ASSERT_TRUE(whole.momenta.defined());
  for (std::int64_t done = 0; done < config.steps; ++done) {
    EXPECT_EQ(whole.rates.data<double>()[done], rates.rate(done));
    EXPECT_EQ(half.rates.data<double>()[done], 0.5 * rates.rate(done));
    EXPECT_EQ(same.rates.data<double>()[done], rates.rate(done));
    EXPECT_EQ(half.momenta.data<double>()[done], *rates.momentum(done));
    const StepCurves one = make_curves(rates, done, context);
    EXPECT_EQ(one.rates.numel(), 1);
    EXPECT_EQ(one.rates.data<double>()[0], rates.rate(done));
    EXPECT_EQ(one.momenta.data<double>()[0], *rates.momentum(done));
  }
  EXPECT_FALSE(make_curves(LearningRate(with_keys(place, {})), 0, context).momenta.defined());
}

}  // namespace
}  // namespace keel
