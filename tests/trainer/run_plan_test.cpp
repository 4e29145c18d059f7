// What runs of several ranks measure is what was planned for them.

#include "keel/trainer/run_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "keel/dist/comm/run_ranks.h"
#include "keel/models/gpt.h"
#include "keel/runtime/file.h"
#include "keel/tokenizers/plain_tokenizers.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/trainer.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

struct Quiet : TrainObserver {};

constexpr const char* kSmallBlocks = "AdamW8bit, min_8bit_size: 256";

constexpr const char* kWithAverages = "AdamW}\nema: {decay: 0.9}\nswa: {start: 2";

constexpr std::pair<const char*, const char*> kRuns[] = {{"ddp-fp32", kWithAverages},
                                                         {"zero3-bf16", kWithAverages},
                                                         {"ddp-fp32", "AdamW"},
                                                         {"zero1-bf16", "AdamW"},
                                                         {"zero2-bf16", "AdamW"},
                                                         {"zero3-fp32", "AdamW"},
                                                         {"zero3-bf16", "AdamW"},
                                                         {"zero2-bf16", kSmallBlocks},
                                                         {"ddp-bf16", "Muon"},
                                                         {"zero3-fp32", "Muon"},
                                                         {"zero2-fp32", "ScheduleFreeAdamW"}};

TEST(RunPlan, OfTwoAndThreeRanksIsWhatTheyMeasure) {
  for (const int ranks : {2, 3})
    for (const auto& [strategy, optimizer] : kRuns) {
      SCOPED_TRACE(concat(strategy, " with ", optimizer, " on ", ranks, " ranks"));
      const testing::TemporaryFolder folder;
      // No evaluation before the end, so that all bytes between two records are those of steps.
      const Config config = parse_config(
          concat(
              "steps: 5\nmodel: {layers: 2, heads: 2, width: 32, block: 9}\ndata: {type: addition, digits: 2}\n"
              "batch: {global: 12, micro: 2}\nscheduler: {warmup: 1}\neval: {every: 0, samples: 10}\nlog: {every: 1}\n"
              "threads: 1\ncheckpoint: {async: true, every: 2}\nstrategy: ",
              strategy, "\noptimizer: {type: ", optimizer, "}\nrun: ", folder / "run", '\n'),
          "plan.yaml");
      EXPECT_FALSE(read_measured_run(config.run).has_value());
      run_ranks(ranks, [&](Communicator& communicator) {
        Quiet quiet;
        train(config, quiet, communicator);
      });
      const RankPlan plan = plan_run(config, *make_task(config), ranks);
      const auto measured = read_measured_run(config.run);
      ASSERT_TRUE(measured.has_value());
      EXPECT_EQ(measured->ranks, ranks);
      EXPECT_EQ(to_string(measured->config.strategy), strategy);
      EXPECT_EQ(measured->parameter, plan.memory.parameter);
      EXPECT_EQ(measured->gradient, plan.memory.gradient);
      EXPECT_EQ(measured->optimizer, plan.memory.optimizer);
      // Where updates are shared while the next step begins, the first or the last of five records may not count them.
      const std::int64_t late = (plan.traffic.gathers + 3) / 4;
      ASSERT_TRUE(measured->sent.has_value());
      EXPECT_GE(*measured->sent, plan.traffic.sent() - late);
      EXPECT_LE(*measured->sent, plan.traffic.sent() + late);
      EXPECT_EQ(measured->buckets, plan.memory.buckets);
      EXPECT_GT(plan.memory.checkpoint, 0);
      EXPECT_EQ(measured->checkpoint, plan.memory.checkpoint);
    }
}

TEST(RunPlan, NamesTheFirstOfTheLargestUnits) {
  const auto size_of = [](const char* model) {
    const std::unique_ptr<TaskBase> task =
        make_task(parse_config(concat("steps: 3\nmodel: ", model, "\ndata: {type: addition, digits: 2}\n"), "c.yaml"));
    return measure_model(StackModels(*task));
  };
  const ModelSize blocks = size_of("{layers: 3, heads: 2, width: 32, block: 9}");
  EXPECT_EQ(blocks.largest_name, "h.0");
  EXPECT_EQ(blocks.largest_unit, 12 * 32 * 32 + 13 * 32);
  EXPECT_EQ(blocks.units, 4);
  EXPECT_EQ(blocks.trained, blocks.parameters);
  EXPECT_EQ(size_of("{layers: 1, heads: 2, width: 2, block: 500}").largest_name, "the rest");
}

TEST(RunPlan, TheVocabularyOfBytesNeedsNoText) {
  const testing::TemporaryFolder folder;
  const std::string head = "steps: 3\nmodel: {layers: 1, heads: 2, width: 16, block: 9}\n";
  const auto rows = [&](const std::string& data) {
    return dynamic_cast<Gpt&>(*make_task(parse_config(head + data, "c.yaml"))->stacks().front().module)
        .options.vocabulary;
  };
  EXPECT_EQ(rows(concat("data: {type: text, tokenizer: byte, path: ", folder / "nowhere", "}\n")),
            ByteTokenizer().vocabulary_size());
  EXPECT_LT(rows("data: {type: addition, digits: 2}\n"), 20);
}

TEST(RunPlan, OperationsOfATraceAreThoseOfAMicroBatchsTokens) {
  for (const int micro : {1, 2, 4}) {
    const Config config = parse_config(
        concat("steps: 3\nmodel: {layers: 1, heads: 2, width: 32, block: 9}\ndata: {type: addition, digits: 2}\n"
               "batch: {global: 4, micro: ",
               micro, "}\n"),
        "trace.yaml");
    const std::unique_ptr<TaskBase> task = make_task(config);
    std::int64_t found = 0;
    for (const TraceNode& node : trace_run(config, *task, 1, 0)) {
      if (node.kind != TraceNode::Kind::compute || node.name != "forward h.0") continue;
      ++found;
      EXPECT_EQ(node.operations, 2 * 12 * 32 * 32 * micro * task->positions());
    }
    EXPECT_EQ(found, 4 / micro);
  }
}

TEST(RunPlan, CopiesInMemoryAreOfRunsThatMakeThem) {
  const auto copies = [](std::string_view every, int ranks) {
    const Config config = parse_config(
        concat("steps: 3\nmodel: {layers: 1, heads: 2, width: 16, block: 9}\ndata: {type: addition, digits: 2}\n"
               "checkpoint: {memory_every: ",
               every, "}\n"),
        "copies.yaml");
    return plan_run(config, *make_task(config), ranks).memory.copies;
  };
  for (const int ranks : {1, 2}) {
    EXPECT_EQ(copies("0", ranks), 0);
    EXPECT_GT(copies("1", ranks), 0);
  }
}

// Rank 0 waits for it in each step but the first.
class LateObserver : public TrainObserver {
 public:
  explicit LateObserver(bool is_late) : is_late_(is_late) {}
  void on_step(const StepReport&) override {
    if (is_late_) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

 private:
  bool is_late_;
};

TEST(RunPlan, EveryStepOfARunTakesLongerThanItWaits) {
  for (const char* strategy : {"ddp-fp32", "zero3-fp32"}) {
    const testing::TemporaryFolder folder;
    const Config config = parse_config(
        concat("steps: 6\nmodel: {layers: 1, heads: 2, width: 16, block: 9}\ndata: {type: addition, digits: 2}\n"
               "batch: {global: 4}\nscheduler: {warmup: 1}\neval: {every: 2, samples: 4}\nlog: {every: 1}\nthreads: 1\n"
               "strategy: ",
               strategy, "\nrun: ", folder / "run", '\n'),
        "late.yaml");
    run_ranks(2, [&](Communicator& ranks) {
      LateObserver late(ranks.rank() == 1);
      train(config, late, ranks);
    });
    const auto measured = read_measured_run(config.run);
    ASSERT_TRUE(measured.has_value());
    ASSERT_EQ(measured->times.size(), 5u);
    for (const StepTime& time : measured->times) EXPECT_GT(time.step_ms, time.exposed_ms) << strategy;
  }
}

std::optional<MeasuredRun> run_of(const std::string& records) {
  const testing::TemporaryFolder folder;
  write_text_file(folder / "config.yaml",
                  "steps: 3\nmodel: {layers: 1, heads: 2, width: 16, block: 9}\n"
                  "data: {type: addition, digits: 2}\n");
  write_text_file(folder / "metrics.jsonl", records +
                                                "{\"step\":30,\"peak_parameter_bytes\":1,\"peak_gradient_bytes\":1,"
                                                "\"peak_optimizer_bytes\":1,\"peak_bucket_bytes\":1}\n");
  return read_measured_run(folder.path());
}

std::vector<StepTime> times_in(const std::string& records) {
  const auto run = run_of(records);
  return run ? run->times : std::vector<StepTime>();
}

TEST(RunPlan, ReadsTheTimesOfRecordsAndOfThoseOfAnOlderKeel) {
  const std::vector<StepTime> times = times_in(
      "{\"step\":10,\"tokens_per_s\":1e6,\"step_ms\":1,\"exposed_ms\":0.5,\"tokens\":1000}\n"
      "{\"step\":20,\"tokens_per_s\":1e6,\"step_ms\":7.5,\"exposed_ms\":6,\"tokens\":2000}\n"
      "{\"step\":30,\"tokens_per_s\":1e6,\"step_ms\":8.5,\"tokens\":3000}\n"
      "{\"step\":40,\"tokens_per_s\":1e6,\"step_ms\":0,\"tokens\":4000}\n"
      "{\"step\":50,\"tokens_per_s\":1e6,\"step_ms\":null,\"tokens\":5000}\n"
      "{\"step\":50,\"tokens_per_s\":1e6,\"step_ms\":3,\"tokens\":5000}\n");
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].step_ms, 7.5);
  EXPECT_EQ(times[0].exposed_ms, 6);
  EXPECT_EQ(times[1].step_ms, 8.5);
  EXPECT_EQ(times[1].exposed_ms, 0);
  const std::vector<StepTime> old = times_in(
      "{\"step\":10,\"tokens_per_s\":5000,\"tokens\":1000}\n"
      "{\"step\":12,\"tokens\":1200}\n"
      "{\"step\":14,\"tokens_per_s\":9000}\n"
      "{\"step\":20,\"tokens_per_s\":2000,\"exposed_ms\":60,\"tokens\":2000}\n");
  ASSERT_EQ(old.size(), 1u);
  EXPECT_DOUBLE_EQ(old[0].step_ms, 50);
  EXPECT_EQ(old[0].exposed_ms, 60);
}

// What the first record has sent counts for nothing: the steps before it are not those of every other one.
TEST(RunPlan, BytesSentInAStepAreThoseOfTheStepsBetweenRecords) {
  const auto run = run_of(
      "{\"step\":1,\"sent_bytes\":9000}\n"
      "{\"step\":10,\"sent_bytes\":100}\n"
      "{\"step\":30,\"sent_bytes\":400}\n");
  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(run->sent, (100 * 9 + 400 * 20) / 29);
}

// Records one step apart, times below a millisecond and rates below one.
TEST(RunPlan, ReadsTimesOfEveryStepHoweverShort) {
  const std::vector<StepTime> times = times_in(
      "{\"step\":1,\"tokens_per_s\":1,\"step_ms\":0.5,\"tokens\":10}\n"
      "{\"step\":2,\"tokens_per_s\":1,\"step_ms\":0.25,\"tokens\":20}\n"
      "{\"step\":3,\"tokens_per_s\":0.5,\"tokens\":30}\n"
      "{\"step\":5,\"tokens_per_s\":0,\"tokens\":50}\n"
      "{\"step\":7,\"tokens_per_s\":null,\"tokens\":70}\n"
      "{\"step\":11,\"tokens_per_s\":4,\"tokens\":90}\n");
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(times[0].step_ms, 0.25);
  EXPECT_DOUBLE_EQ(times[1].step_ms, 20000) << "10 tokens";
  EXPECT_DOUBLE_EQ(times[2].step_ms, 1250) << "20 tokens in 4 steps";
}

TEST(RunPlan, BytesSentAreThoseOfTwoRecordsAtLeast) {
  const auto sent = [](const std::string& records) { return run_of(records)->sent; };
  EXPECT_EQ(sent("{\"step\":1,\"sent_bytes\":9000}\n"), std::nullopt);
  EXPECT_EQ(sent(""), std::nullopt);
  EXPECT_EQ(sent("{\"step\":1,\"sent_bytes\":9000}\n{\"step\":2,\"sent_bytes\":70}\n"), 70);
  EXPECT_EQ(sent("{\"step\":0,\"sent_bytes\":9000}\n{\"step\":1,\"sent_bytes\":70}\n{\"step\":1,\"sent_bytes\":99}\n"),
            70);
}

TEST(RunPlan, IsOfARunThatHasRecordsAConfigurationAndAnEnd) {
  const testing::TemporaryFolder folder;
  const auto run_with = [&](const std::string& optimizer) {
    write_text_file(folder / "config.yaml", concat("steps: 3\nmodel: {layers: 1, heads: 2, width: 16, block: 9}\n"
                                                   "data: {type: addition, digits: 2}\noptimizer: {type: ",
                                                   optimizer, "}\n"));
    return read_measured_run(folder.path());
  };
  EXPECT_FALSE(run_with("AdamW")) << "no records";
  const std::string sent = "{\"step\":1,\"sent_bytes\":9}\n{\"step\":2,\"sent_bytes\":7}\n",
                    end =
                        "{\"step\":2,\"peak_parameter_bytes\":1,\"peak_gradient_bytes\":2,\"peak_optimizer_bytes\":3,"
                        "\"peak_bucket_bytes\":4";
  write_text_file(folder / "metrics.jsonl", sent);
  EXPECT_FALSE(run_with("AdamW")) << "no end";
  write_text_file(folder / "metrics.jsonl", sent + end + "}\n");
  std::optional<MeasuredRun> run = run_with("AdamW");
  ASSERT_TRUE(run);
  EXPECT_EQ(concat(run->parameter, ' ', run->gradient, ' ', run->optimizer, ' ', run->buckets, ' ', run->checkpoint,
                   ' ', run->host, ' ', run->host_buckets),
            "1 2 3 4 0 0 0");
  EXPECT_EQ(run->sent, 7);
  EXPECT_EQ(run->ranks, 1);
  EXPECT_EQ(run_with("LBFGS")->sent, std::nullopt) << "of which a step evaluates the loss several times";
  write_text_file(folder / "metrics.jsonl", sent + end +
                                                ",\"peak_checkpoint_bytes\":5,\"peak_host_bytes\":6,"
                                                "\"peak_host_bucket_bytes\":7}\n");
  run = run_with("AdamW");
  EXPECT_EQ(concat(run->checkpoint, ' ', run->host, ' ', run->host_buckets), "5 6 7");
  std::filesystem::remove(folder / "config.yaml");
  EXPECT_FALSE(read_measured_run(folder.path())) << "no configuration";
}

TEST(RunPlan, TheDeviceOfARunIsThatOfItsNewestSession) {
  const testing::TemporaryFolder folder;
  const auto on_device = [&](const std::string& records) {
    write_text_file(folder / "metrics.jsonl", records);
    return ran_on_device(folder.path());
  };
  EXPECT_FALSE(ran_on_device(folder / "nowhere"));
  const std::string here = "{\"step\":1,\"resident_bytes\":9}\n",
                    there = "{\"step\":1,\"resident_bytes\":9,\"device_bytes\":0}\n",
                    end = "{\"step\":2,\"peak_parameter_bytes\":1,\"peak_optimizer_bytes\":0}\n",
                    end_there = "{\"step\":2,\"peak_parameter_bytes\":1,\"peak_host_bytes\":0}\n";
  EXPECT_FALSE(on_device(""));
  EXPECT_FALSE(on_device(here + end));
  EXPECT_TRUE(on_device(there + end)) << "of an older keel";
  EXPECT_TRUE(on_device(end_there));
  EXPECT_FALSE(on_device(there + end_there + here));
  EXPECT_FALSE(on_device(there + end_there + here + end));
  EXPECT_TRUE(on_device(here + end + there));
}

TEST(RunPlan, AveragesOfWeightsAreFp32NumbersOfTheRanksShareEach) {
  const auto planned = [](const std::string& more, bool on_processor, int ranks) {
    const Config config = parse_config(
        concat("steps: 3\nmodel: {layers: 1, heads: 2, width: 16, block: 9}\ndata: {type: addition, digits: 2}\n"
               "strategy: zero2-bf16\n",
               more),
        "averages.yaml");
    const std::unique_ptr<TaskBase> task = make_task(config);
    return std::pair(plan_run(config, *task, ranks, on_processor), planned_files(config, *task, ranks, 1 % ranks));
  };
  const std::string async = "checkpoint: {async: true}\n";
  const std::pair<std::string, bool> places[] = {{"", false},
                                                 {"sharding: {offload_optimizer: host}\n", true},
                                                 {"sharding: {offload_optimizer: file}\n", true},
                                                 {"sharding: {offload_parameters: host}\n", false}};
  for (const int ranks : {1, 2})
    for (const bool on_processor : {true, false})
      for (const auto& [place, updates_there] : places) {
        const auto [plain, plain_files] = planned(async + place, on_processor, ranks);
        const bool on_host = !on_processor && updates_there;
        for (const auto& [averages, count] : {std::pair("ema: {decay: 0.5}\n", 1),
                                              {"swa: {start: 2}\n", 1},
                                              {"ema: {decay: 0.5}\nswa: {start: 2}\n", 2}}) {
          const auto [plan, files] = planned(async + place + averages, on_processor, ranks);
          const std::int64_t bytes = count * plan.owned * 4;
          EXPECT_EQ(plan.memory.host, plain.memory.host + (on_host ? bytes : 0));
          EXPECT_EQ(plan.memory.optimizer, plain.memory.optimizer + (on_host ? 0 : bytes));
          EXPECT_EQ(plan.memory.checkpoint, plain.memory.checkpoint + bytes);
          EXPECT_GT(files, plain_files);
        }
      }
  EXPECT_EQ(planned("checkpoint: {async: false}\n", true, 2).first.memory.checkpoint, 0);
}

TEST(RunPlan, CopiesInMemoryAreTwoOfTheFilesOfARankAndOfItsPartner) {
  for (const char* async : {"true", "false"}) {
    const Config config = parse_config(
        concat("steps: 3\nmodel: {layers: 1, heads: 2, width: 16, block: 9}\ndata: {type: addition, digits: 2}\n"
               "strategy: zero3-bf16\nema: {decay: 0.5}\ncheckpoint: {memory_every: 1, async: ",
               async, "}\n"),
        "copies.yaml");
    const std::unique_ptr<TaskBase> task = make_task(config);
    for (const int ranks : {1, 2, 3}) {
      std::int64_t files = 0;
      for (int rank = 0; rank < std::min(ranks, 2); ++rank) files += planned_files(config, *task, ranks, rank);
      EXPECT_EQ(plan_run(config, *task, ranks).memory.copies, 2 * files) << ranks;
    }
  }
}

TEST(RunPlan, OfMicroBatchesNeedsARowForEachRank) {
  const auto planned = [](const std::string& more, int ranks) {
    return planned_micro_batches(
        parse_config(concat("steps: 3\ndata: {type: addition}\nbatch: {global: 4, micro: 1}\n", more), "c"), ranks);
  };
  EXPECT_EQ(planned("", 1), 4);
  EXPECT_EQ(planned("", 3), 2);
  EXPECT_EQ(planned("", 4), 1);
  EXPECT_EQ(testing::error_of([&] { planned("", 5); }), "a global batch of 4 rows is too small for 5 ranks");
  EXPECT_EQ(planned("sharding: {virtual_ranks: 4}\n", 2), 1);
  EXPECT_EQ(testing::error_of([&] { planned("sharding: {virtual_ranks: 8}\n", 2); }),
            "a global batch of 4 rows is too small for 8 virtual ranks (sharding.virtual_ranks)");
}

struct Halves : Module {
  Parameter fixed{{3, 5}, Initializer::zeros()}, learnt{{2, 4}, Initializer::zeros()};
  void visit(Visitor& v) override {
    v("fixed", fixed);
    v("learnt", learnt);
  }
};

TEST(RunPlan, OfAModelCountsWhatIsTrainedOfIt) {
  Halves model;
  EXPECT_EQ(measure_model(model).trained, 23);
  model.fixed.set_trainable(false);
  const ModelSize size = measure_model(model);
  EXPECT_EQ(size.parameters, 23);
  EXPECT_EQ(size.trained, 8);
}

}  // namespace
}  // namespace keel
