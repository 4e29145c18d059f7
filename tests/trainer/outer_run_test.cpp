// Runs whose groups of ranks take outer steps: resuming inside a window, with other ranks, and what is refused.

#include <gtest/gtest.h>

#include "keel/dist/checkpoint/export.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/dist/strategies/outer_steps.h"
#include "keel/runtime/file.h"
#include "keel/trainer/checkpoint_list.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/evaluate_run.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/run_plan.h"
#include "keel/trainer/trained_model.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

std::vector<std::string> outer_settings(const std::string& outer, const std::string& strategy, int group) {
  return {"outer=" + outer, "strategy=" + strategy, concat("sharding.group=", group)};
}

std::vector<std::string> plus(std::vector<std::string> settings, const std::string& more) {
  settings.push_back(more);
  return settings;
}

TEST(OuterRun, GoesOnInsideAWindowToTheSameBits) {
  for (const auto& [outer, strategy, ranks, group] : std::vector<std::tuple<const char*, const char*, int, int>>{
           {"{type: diloco, every: 3}", "ddp-fp32", 2, 1},
           {"{type: local_sgd, every: 4}", "zero3-bf16", 4, 2},
           {"{type: streaming_diloco, every: 4, fragments: 2}", "zero2-bf16", 3, 1},
           {"{type: streaming_diloco, every: 4, fragments: 2, delay: 2, on_failure: drop}", "ddp-fp32", 4, 2},
           {"{type: streaming_diloco, every: 4, fragments: 2, delay: 2, on_failure: drop}", "zero1-fp32", 4, 2},
           {"{type: sparse_loco, every: 3, chunk: 64, keep: 4}", "zero2-fp32", 4, 2},
           {"{type: demo, chunk: 16, keep: 2}", "zero3-fp32", 4, 2}}) {
    const TemporaryFolder place;
    const std::vector<std::string> settings = outer_settings(outer, strategy, group);
    train_by(ranks, small_run(place, "whole", settings));
    train_by(ranks, small_run(place, "parts", settings), 5);
    EXPECT_TRUE(
        std::filesystem::exists(RunFolder(place / "parts").checkpoint(5) +
                                concat("/group-", std::string(strategy).starts_with("ddp") ? ranks - group + 1 : ranks,
                                       "-of-", ranks, ".safetensors")));
    train_by(ranks, small_run(place, "parts", plus(settings, "resume=auto")));
    EXPECT_TRUE(weights_of(small_run(place, "parts")) == weights_of(small_run(place, "whole"))) << outer;
  }
}

TEST(OuterRun, GoesOnWithOtherRanksFromTheFirstGroup) {
  const TemporaryFolder place;
  const std::vector<std::string> settings = outer_settings("{type: diloco, every: 3}", "ddp-fp32", 1);
  const Config config = small_run(place, "run", settings);
  train_by(2, config, 5);
  const std::string checkpoint = RunFolder(config.run).checkpoint(5);
  for (const int n : {1, 3}) {
    const std::string run = concat("on-", n);
    const auto told = train_by(n, small_run(place, run, plus(settings, "resume=" + checkpoint)));
    EXPECT_FALSE(weights_of(small_run(place, run)).empty());
    EXPECT_EQ(n > 1, told[0]->messages.find("without what the others have learnt") != std::string::npos)
        << told[0]->messages;
  }
}

TEST(OuterRun, HasTheMemoryThatIsPlanned) {
  for (const auto& [outer, group, strategy] : std::vector<std::tuple<const char*, int, const char*>>{
           {"{type: local_sgd, every: 2}", 2, "ddp-fp32"},
           {"{type: diloco, every: 2, on_failure: drop}", 1, "zero1-bf16"},
           {"{type: streaming_diloco, every: 4, fragments: 2}", 1, "zero3-fp32"},
           {"{type: streaming_diloco, every: 3, fragments: 3, delay: 0, blend: 1, on_failure: drop}", 2, "ddp-bf16"},
           {"{type: streaming_diloco, every: 3, fragments: 1, blend: 1, momentum: 0}", 1, "ddp-fp32"},
           {"{type: sparse_loco, every: 3, chunk: 64, keep: 4}", 2, "ddp-fp32"},
           {"{type: sparse_loco, every: 2, chunk: 100, keep: 9, bits: 32}", 2, "zero3-bf16"},
           {"{type: demo, chunk: 16, keep: 2}", 2, "zero2-fp32"},
           {"{type: demo, chunk: 100, keep: 9}\noptimizer: {type: Muon}", 2, "ddp-bf16"}}) {
    const TemporaryFolder place;
    const Config config = parse_config(
        concat("steps: 4\nmodel: {layers: 2, heads: 2, width: 20, block: 9}\ndata: {type: addition, digits: 2}\n"
               "batch: {global: 4}\neval: {every: 0, samples: 4}\ncheckpoint: {every: 0}\nthreads: 1\nouter: ",
               outer, "\nsharding: {group: ", group, "}\nstrategy: ", strategy, "\nrun: ", place / "run", '\n'),
        "outer.yaml");
    train_by(4, config);
    const MemoryPlan plan = plan_run(config, *make_task(config), 4).memory;
    const auto measured = read_measured_run(config.run);
    ASSERT_TRUE(measured.has_value());
    EXPECT_EQ(measured->buckets, plan.buckets) << outer << ' ' << strategy;
    EXPECT_EQ(measured->optimizer, plan.optimizer) << outer << ' ' << strategy;
  }
}

// Keys of a program with a strategy of its own.
std::shared_ptr<const ConfigKeys> elastic_keys() {
  const StrategyEntry elastic = {
      .name = "elastic",
      .summary = "another program's",
      .rows = {{.key = "outer.part", .type = KeyType::integer, .standard = "3", .help = "Steps.", .low = 1}},
      .make = [](const Settings& settings) { return make_outer_steps({.every = settings.integer("outer.part")}); }};
  return std::make_shared<const ConfigKeys>(std::span<const TaskEntry>(), std::span(&elastic, 1));
}

// Its run, by two groups.
Config elastic_run(const TemporaryFolder& place) {
  const Config plain = small_run(place, "run", {"steps=8", "strategy=zero1-bf16"});
  return parse_config(elastic_keys(), to_yaml(plain), "c.yaml", {"outer={type: elastic, part: 2}", "sharding.group=1"});
}

TEST(OuterRun, OfAnotherProgramsStrategyIsListedExportedAndAnswers) {
  const TemporaryFolder place;
  const Config config = elastic_run(place);
  train_by(2, config);
  const RunFolder run(config.run);

  const CheckpointList list = list_checkpoints(config.run);
  ASSERT_EQ(list.checkpoints.size(), 2u);
  EXPECT_FALSE(list.is_damaged());
  for (const ListedCheckpoint& each : list.checkpoints)
    EXPECT_EQ(each.unknown, "the strategy of communication 'elastic'") << each.damage;
  EXPECT_EQ(list_checkpoints(config.run, {}, config.keys).checkpoints.front().unknown, "");

  const Checkpoint newest = find_checkpoint(config.run, std::nullopt, [](std::string_view what) { FAIL() << what; });
  EXPECT_EQ(newest.state.step, 8);
  export_weights(newest.path, newest.manifest, place / "weights");
  EXPECT_TRUE(read_text_file(place / "weights") == weights_of(config));

  const auto answers = [&](bool is_exported, const std::shared_ptr<const ConfigKeys>& keys) {
    std::string text;
    for (const int n : {1, 2})
      run_ranks(n, [&](Communicator& ranks) {
        TrainedModel trained({.path = config.run, .strategy = "zero3-fp32", .is_exported = is_exported, .keys = keys},
                             ranks, [](LogLevel, std::string_view what) { FAIL() << what; });
        const std::string own = evaluate_run(trained).json().dump();
        if (ranks.rank() == 0) text += own;
      });
    return text;
  };
  for (const bool is_exported : {false, true})
    EXPECT_EQ(answers(is_exported, keel_keys()), answers(is_exported, config.keys));
}

TEST(OuterRun, OfAnotherProgramsStrategyIsNotTrainedOnOrPlanned) {
  const TemporaryFolder place;
  const Config config = elastic_run(place);
  train_by(2, config);
  const auto before = std::filesystem::last_write_time(RunFolder(config.run).latest());
  const std::string of =
      "' is of the strategy of communication 'elastic', which this program does not have; it has "
      "local_sgd, diloco, streaming_diloco, sparse_loco, demo. Ask the program that trained it";
  for (const std::string& resume : {std::string("auto"), config.run, RunFolder(config.run).checkpoint(8)})
    for (const char* outer : {"outer.type=none", "outer.type=diloco"}) {
      const Config other =
          small_run(place, resume == "auto" ? "run" : "other", {"strategy=zero1-bf16", outer, "resume=" + resume});
      EXPECT_EQ(error_of([&] { train_by(2, other); }), concat("'", RunFolder(config.run).checkpoint(8), of));
    }
  EXPECT_EQ(error_of([&] { read_measured_run(config.run); }), concat("'", RunFolder(config.run).config(), of));
  EXPECT_TRUE(std::filesystem::last_write_time(RunFolder(config.run).latest()) == before);
  EXPECT_TRUE(read_measured_run(config.run, config.keys));
}

TEST(OuterRun, RefusesWhatDoesNotGoTogether) {
  const TemporaryFolder place;
  const auto message = [&](const std::vector<std::string>& settings) {
    try {
      small_run(place, "run", settings);
    } catch (const Error& error) { return std::string(error.what()); }
    return std::string();
  };
  EXPECT_NE(message({"outer.type=dilocoo"}).find("did you mean 'diloco'"), std::string::npos);
  EXPECT_EQ(message({"outer={type: diloco, every: 0}"}).find("no value"), std::string::npos);
  EXPECT_NE(message({"outer.type=diloco", "sharding.group=1", "ema.decay=0.9"}).find("no average"), std::string::npos);
  EXPECT_NE(
      message({"outer={type: streaming_diloco, every: 2}", "sharding.group=1"}).find("there are 1 to 2 fragments"),
      std::string::npos);
  EXPECT_NE(message({"outer={type: streaming_diloco, every: 4, delay: 4}", "sharding.group=1"})
                .find("delayed by 0 to 3 steps"),
            std::string::npos);
  EXPECT_NE(message({"outer={type: local_sgd, rate: 0.5}", "sharding.group=1"}).find("applies only when"),
            std::string::npos);
  EXPECT_NE(message({"outer={type: sparse_loco, chunk: 4, keep: 5}"}).find("1 to 4 numbers"), std::string::npos);
  EXPECT_NE(message({"outer={type: demo, chunk: 4, keep: 5}"}).find("1 to 4 components"), std::string::npos);
  EXPECT_EQ(message({"outer={type: streaming_diloco, every: 8}", "sharding.group=1"}), "");
}

}  // namespace
}  // namespace keel
