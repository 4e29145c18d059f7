#include "keel/trainer/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "keel/autograd/functions.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/dist/lab/student.h"
#include "keel/nn/layers.h"
#include "keel/runtime/stopwatch.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;

std::vector<ComparedRun> compare_by(int n, const Config& config, const CompareAxes& axes,
                                    const CompareOptions& options = {.steps = 4, .repeats = 1}) {
  std::vector<ComparedRun> results;
  const std::vector<Variant> variants = variants_of(config, axes);
  run_ranks(n, [&](Communicator& ranks) {
    Recorder recorder;
    const auto mine = compare(variants, options, recorder, ranks);
    if (ranks.rank() == 0) results = mine;
  });
  return results;
}

// Acceptance check 6.
TEST(Compare, FindsTheSameWeightsInAllStagesAndBytesByFormula) {
  const TemporaryFolder place;
  for (const int n : {1, 2, 3, 4})
    for (const std::string& more : {std::string("batch.micro=3"), std::string("batch.micro=1")}) {
      const Config config = small_run(place, "run", {"batch.global=12", more});
      const auto results =
          compare_by(n, config, {.strategies = {"ddp-bf16", "zero1-bf16", "zero2-bf16", "zero3-bf16"}});
      ASSERT_EQ(results.size(), 4u);
      for (const ComparedRun& result : results) {
        EXPECT_EQ(result.fingerprint, results[0].fingerprint) << result.name << ", " << n << " ranks, " << more;
        EXPECT_EQ(result.loss, results[0].loss);
        EXPECT_EQ(result.sent, result.sent_by_formula) << result.name << ", " << n << " ranks, " << more;
        EXPECT_EQ(result.kept, result.kept_by_formula) << result.name << ", " << n << " ranks, " << more;
      }
      if (n > 1) { EXPECT_LT(results[3].kept, results[0].kept); }
    }
  EXPECT_FALSE(std::filesystem::exists(place / "run"));
}

TEST(Compare, FindsTheSameWeightsInAllStagesWhenEachMicroBatchIsReduced) {
  const TemporaryFolder place;
  const Config config =
      small_run(place, "run", {"batch.global=12", "batch.micro=2", "sharding.accumulation=each_backward"});
  for (const int n : {2, 3}) {
    const auto results = compare_by(
        n, config, {.strategies = {"ddp-bf16", "zero1-bf16", "zero2-bf16", "zero3-bf16"}, .compressions = {"int8"}});
    ASSERT_EQ(results.size(), 8u);
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].fingerprint, results[i % 2].fingerprint) << results[i].name << ", " << n << " ranks";
      EXPECT_EQ(results[i].decisive, results[i % 2].decisive);
      EXPECT_TRUE(results[i].fits_formulas()) << results[i].name << ", " << n << " ranks";
    }
  }
}

// Data parallel training has no groups, and adds all ranks at once.
TEST(Compare, SaysThatGroupsOfRanksAddInAnotherOrder) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"batch.global=12", "batch.micro=3", "sharding.group=2"});
  const auto results = compare_by(4, config, {.strategies = {"ddp-bf16", "zero1-bf16", "zero3-bf16"}});
  EXPECT_EQ(results[1].fingerprint, results[2].fingerprint);
  EXPECT_EQ(results[1].decisive, results[2].decisive);
  EXPECT_NE(results[0].fingerprint, results[1].fingerprint);
  EXPECT_EQ(results[0].decisive.back(), "adds all ranks at once");
  EXPECT_EQ(results[1].decisive.back(), "adds inside groups of 2 ranks first");
}

TEST(Compare, CountsWhatIsOffloadedByItsFormulaOnTheProcessorToo) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"model.layers=1", "sharding.offload_optimizer=cpu"});
  for (const ComparedRun& result : compare_by(2, config, {.strategies = {"zero1-bf16", "zero3-fp32"}})) {
    EXPECT_EQ(result.kept, result.kept_by_formula) << result.name;
    EXPECT_EQ(result.sent, result.sent_by_formula) << result.name;
  }
}

// Of trainings that have steps beside whole windows, too, and sums that are under way between steps.
TEST(Compare, CountsWhatGroupsTellEachOtherByItsFormula) {
  const TemporaryFolder place;
  for (const auto& [outer, every] : {std::pair("{type: diloco, every: 2}", 2),
                                     {"{type: local_sgd, every: 3}", 3},
                                     {"{type: demo, chunk: 16}", 1},
                                     {"{type: streaming_diloco, every: 3, fragments: 3, delay: 2}", 3},
                                     {"{type: streaming_diloco, every: 2, fragments: 2, on_failure: drop}", 2},
                                     {"{type: sparse_loco, every: 2, chunk: 64, keep: 4}", 2},
                                     {"{type: diloco, every: 5}", 5}})
    for (const int group : {1, 2}) {
      const Config config =
          small_run(place, "run",
                    {concat("outer=", outer), concat("sharding.group=", group), "batch.global=12", "batch.micro=3"});
      const auto results =
          compare_by(4, config, {.strategies = {"ddp-fp32", "zero2-fp32"}}, {.steps = 5, .repeats = 1});
      ASSERT_EQ(results.size(), 2u);
      for (const ComparedRun& result : results) {
        EXPECT_EQ(result.fingerprint, results[0].fingerprint) << outer << ", " << result.name;
        EXPECT_EQ(result.sent, result.sent_by_formula) << outer << ", " << result.name << ", groups of " << group;
        EXPECT_EQ(result.kept, result.kept_by_formula) << outer << ", " << result.name << ", groups of " << group;
        EXPECT_EQ(result.window, every > 4 ? every : 0) << outer;
        EXPECT_EQ(result.sent > 0, every <= 4 || group > 1) << outer;
      }
    }
}

TEST(Compare, CountsWhatGroupsTellEachOtherByTheFormulaOfEveryAlgorithm) {
  const TemporaryFolder place;
  for (const std::string outer :
       {"{type: diloco, every: 2}", "{type: demo, chunk: 16}", "{type: sparse_loco, every: 2, chunk: 64, keep: 4}"})
    for (const int n : {3, 4}) {
      const Config config = small_run(place, "run", {"outer=" + outer, "batch.global=12", "batch.micro=3"});
      const auto results = compare_by(
          n, config,
          {.strategies = {"zero1-fp32"}, .algorithms = {"ordered", "direct", "flat", "ring", "tree", "rhd", "hier"}},
          {.steps = 4, .repeats = 1});
      for (const ComparedRun& result : results)
        EXPECT_EQ(result.sent, result.sent_by_formula) << outer << ", " << result.name << ", " << n << " ranks";
    }
}

TEST(Compare, KeepsNoBlockWhereActivationsAreRecomputed) {
  const TemporaryFolder place;
  const Config config =
      small_run(place, "run", {"model.recompute=true", "sharding.keep_last_unit=true", "batch.micro=3"});
  for (const ComparedRun& result : compare_by(2, config, {.strategies = {"zero3-fp32"}}))
    EXPECT_EQ(result.sent, result.sent_by_formula);
}

TEST(Compare, TellsOtherNumbersApart) {
  const TemporaryFolder place;
  const auto results = compare_by(2, small_run(place, "run"), {.strategies = {"zero1-fp32", "zero1-bf16"}});
  EXPECT_NE(results[0].fingerprint, results[1].fingerprint);
}

TEST(Compare, SaysWhichChangesOfTheConfigurationLetWeightsDiffer) {
  const TemporaryFolder place;
  const auto results =
      compare_by(2, small_run(place, "run", {"strategy=zero1-fp32"}), {.changes = {"fast: optimizer.lr=0.1"}});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_NE(results[0].fingerprint, results[1].fingerprint);
  EXPECT_EQ(results[1].decisive.back(), "has optimizer.lr=0.1");
  EXPECT_EQ(results[0].decisive.size() + 1, results[1].decisive.size());
}

TEST(Compare, CountsTheBytesOfEveryAlgorithmByItsFormula) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"batch.global=12", "batch.micro=12"});
  for (const int n : {2, 3, 4}) {
    const auto results = compare_by(n, config,
                                    {.strategies = {"ddp-fp32", "zero3-fp32"},
                                     .algorithms = {"ordered", "direct", "flat", "ring", "tree", "rhd", "hier"}});
    ASSERT_EQ(results.size(), 14u);
    EXPECT_EQ(results[8].name, "zero3-fp32 direct");
    for (const ComparedRun& result : results) {
      EXPECT_EQ(result.sent, result.sent_by_formula) << result.name << ", " << n << " ranks";
      EXPECT_EQ(result.kept, result.kept_by_formula) << result.name << ", " << n << " ranks";
      if (result.decisive == results[0].decisive) {
        EXPECT_EQ(result.fingerprint, results[0].fingerprint) << result.name << ", " << n << " ranks";
        EXPECT_EQ(result.loss, results[0].loss) << result.name;
      } else {
        EXPECT_NEAR(result.loss, results[0].loss, 1e-4) << result.name;
      }
    }
    for (const std::size_t by_rank : {1, 2, 7, 8, 9}) EXPECT_EQ(results[by_rank].decisive, results[0].decisive);
    EXPECT_NE(results[3].decisive, results[0].decisive) << "a ring rounds partial sums";
  }
}

TEST(Compare, FindsTheSameWeightsForEveryBucketAndOnASlowNetwork) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"batch.micro=6", "strategy=ddp-fp32"});
  const CompareAxes axes{.buckets = {"1K", "16K", "4M"}};
  const auto fast = compare_by(2, config, axes, {.steps = 3, .repeats = 3});
  const auto slow = compare_by(
      2, config, axes,
      {.steps = 3, .repeats = 1, .network = {.link = {.delay = std::chrono::microseconds(50), .bandwidth = 1e8}}});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(fast[i].fingerprint, fast[0].fingerprint) << fast[i].name;
    EXPECT_EQ(slow[i].fingerprint, fast[0].fingerprint) << slow[i].name;
    EXPECT_EQ(slow[i].sent, slow[i].sent_by_formula) << slow[i].name;
    EXPECT_TRUE(fast[i].repeats);
    EXPECT_GT(fast[i].confidence_ms, 0);
    EXPECT_LE(fast[i].confidence_ms, lab::student_quantile(2) * fast[i].step_ms * (1 + 1e-9))
        << "as wide as if one of three trainings took all of the time";
    EXPECT_EQ(slow[i].confidence_ms, 0) << "one training has no interval";
    EXPECT_GE(fast[i].p95_ms, fast[i].step_ms);
  }
}

TEST(Compare, CompressesInEveryStageToTheSameWeightsAndByTheBytesOfItsFormula) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"batch.global=12", "batch.micro=2"});
  for (const int n : {2, 3, 4}) {
    const auto results = compare_by(n, config,
                                    {.strategies = {"ddp-fp32", "zero1-fp32", "zero2-fp32", "zero3-fp32"},
                                     .compressions = {"bf16", "int8", "topk:0.05", "powersgd:2"}});
    ASSERT_EQ(results.size(), 20u) << "four, and none";
    for (std::size_t i = 0; i < results.size(); ++i) {
      const ComparedRun &result = results[i], &plain = results[i / 5 * 5];
      SCOPED_TRACE(concat(result.name, ", ", n, " ranks"));
      EXPECT_EQ(result.sent, result.sent_by_formula);
      EXPECT_EQ(result.kept, result.kept_by_formula);
      EXPECT_EQ(result.fingerprint, results[i % 5].fingerprint) << "than under ddp";
      EXPECT_EQ(result.decisive, results[i % 5].decisive);
      EXPECT_EQ(result.base, plain.base);
      EXPECT_EQ(result.compresses, i % 5 != 0);
      EXPECT_EQ(std::count(result.decisive.begin(), result.decisive.end(), "sends gradients as they are"),
                i % 5 == 0 ? 1 : 0);
      EXPECT_NEAR(result.loss, plain.loss, 0.2);
      if (i % 5 == 0) continue;
      EXPECT_NE(result.decisive, plain.decisive);
      EXPECT_LT(result.sent, plain.sent);
      EXPECT_GT(result.codec_ms, 0);
    }
  }
}

TEST(Compare, SaysWhatGradientsAreSentAs) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"batch.global=2", "batch.micro=1", "model.layers=1"});
  const auto results = compare_by(2, config, {.compressions = {"bf16", "topk:0.25"}}, {.steps = 2, .repeats = 1});
  ASSERT_EQ(results.size(), 3u) << "two, and none";
  const char* const says[] = {"sends gradients as they are", "sends gradients as bf16",
                              "sends gradients as topk, fraction 0.25"};
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(std::ranges::count(results[i].decisive, says[i]), 1) << ::testing::PrintToString(results[i].decisive);
    EXPECT_EQ(results[i].compresses, i > 0);
  }
}

// Acceptance check 12.
TEST(Compare, SaysWhatCompressionBringsAndWhenItIsNothing) {
  ComparedRun plain, fast, slow, near;
  plain.step_ms = 10;
  plain.confidence_ms = 0.3;
  plain.sent = 4'000'000;
  fast = slow = near = plain;
  fast.step_ms = 8;
  fast.sent = 1'000'000;
  fast.codec_ms = 1.5;
  EXPECT_TRUE(net_gain(plain, fast).is_gain);
  EXPECT_NEAR(net_gain(plain, fast).fraction, 0.2, 1e-12);
  EXPECT_NEAR(net_gain(plain, fast).pays_below, 3e6 / 1.5e-3, 1) << "bytes saved in the codec's time";
  slow.step_ms = 12;
  EXPECT_FALSE(net_gain(plain, slow).is_gain);
  EXPECT_TRUE(net_gain(plain, slow).is_loss);
  EXPECT_EQ(net_gain(plain, slow).pays_below, 0) << "no bytes are saved";
  near.step_ms = 9.6;
  near.confidence_ms = 0.4;
  EXPECT_FALSE(net_gain(plain, near).is_gain) << "0.4 ms are less than the two intervals explain, 0.5 ms";
}

TEST(Compare, CountsAGainFromWhatChanceExplainsOn) {
  const auto gain_of = [](ComparedRun plain, double step_ms, double codec_ms, std::int64_t sent) {
    ComparedRun compressed = plain;
    compressed.step_ms = step_ms;
    compressed.codec_ms = codec_ms;
    compressed.sent = sent;
    compressed.confidence_ms = 0.4;
    return net_gain(plain, compressed);
  };
  ComparedRun plain;
  plain.step_ms = 10;
  plain.confidence_ms = 0.3;
  plain.sent = 100;
  EXPECT_FALSE(gain_of(plain, 9.5, 1, 1).is_gain) << "0.5 is what 0.3 and 0.4 explain";
  EXPECT_FALSE(gain_of(plain, 10.5, 1, 1).is_loss);
  EXPECT_TRUE(gain_of(plain, 9.4375, 1, 1).is_gain && !gain_of(plain, 9.4375, 1, 1).is_loss);
  EXPECT_TRUE(gain_of(plain, 10.5625, 1, 1).is_loss && !gain_of(plain, 10.5625, 1, 1).is_gain);
  EXPECT_EQ(gain_of(plain, 12.5, 1, 1).fraction, -0.25);
  EXPECT_EQ(gain_of(plain, 9, 0.5, 99).pays_below, 2000) << "a byte in half of a millisecond";
  EXPECT_EQ(gain_of(plain, 9, 0.5, 100).pays_below, 0);
  EXPECT_EQ(gain_of(plain, 9, 0, 1).pays_below, 0);
  plain.step_ms = 0.5;
  EXPECT_EQ(gain_of(plain, 0.25, 1, 1).fraction, 0.5);
  plain.step_ms = 0;
  EXPECT_EQ(gain_of(plain, 0.25, 1, 1).fraction, 0);
}

// No part of a training takes longer than all of them together.
TEST(Compare, SaysWhatDecidesTheBitsAndTakesNoLongerThanItTakes) {
  const TemporaryFolder place;
  const auto compared = [&](const std::vector<std::string>& keys, const CompareAxes& axes) {
    std::vector<std::string> all = {"batch.global=4", "batch.micro=1", "model.layers=1", "strategy=zero1-fp32"};
    all.insert(all.end(), keys.begin(), keys.end());
    const double began = milliseconds_now();
    const auto results = compare_by(2, small_run(place, "run", all), axes, {.steps = 2, .repeats = 2});
    const double took = milliseconds_now() - began;
    std::string told;
    for (const ComparedRun& each : results) {
      EXPECT_TRUE(each.repeats);
      for (const double ms : {each.step_ms, each.p95_ms, each.exposed_ms, each.codec_ms}) {
        EXPECT_GE(ms, 0);
        EXPECT_LE(ms, took);
      }
      for (const std::string& one : each.decisive) told += one + "; ";
      told += '\n';
    }
    return told;
  };
  const std::string fp32 = "computes in fp32; ", one = "adds by rank in one sum; ",
                    at_once = "adds all ranks at once; ", as_they_are = "sends gradients as they are; ";
  EXPECT_EQ(
      compared({}, {.algorithms = {"ordered", "ring"}}),
      fp32 + one + as_they_are + at_once + "\n" + fp32 + "adds partial sums by ring; " + as_they_are + at_once + "\n");
  EXPECT_EQ(compared({}, {.strategies = {"zero1-fp32"}, .algorithms = {"ring"}}),
            fp32 + "adds partial sums by ring, as zero1-fp32 ring; " + as_they_are + at_once + "\n");
  EXPECT_EQ(compared({"gradient_compression={type: qgz, bits: 8}"}, {}),
            fp32 + one + "sends gradients as qgz, 8 bits; " + at_once + "\n");
  EXPECT_EQ(compared({"gradient_compression={type: qgz, bits: 4}"}, {}),
            fp32 + one + "sends gradients as qgz; " + at_once + "\n");
  EXPECT_EQ(compared({}, {.compressions = {"powersgd:2", "topk:0.5"}}),
            fp32 + one + as_they_are + at_once + "\n" + fp32 + one + "sends gradients as powersgd, rank 2; " + at_once +
                "\n" + fp32 + one + "sends gradients as topk, fraction 0.5; " + at_once + "\n");
  EXPECT_EQ(compared({"sharding.group=2"}, {}), fp32 + one + as_they_are + at_once + "\n");
  EXPECT_EQ(compared({"sharding.group=1"}, {.strategies = {"ddp-fp32", "zero1-bf16"}}),
            fp32 + one + as_they_are + at_once + "\n" + "computes in bf16; " + one + as_they_are +
                "adds inside groups of 1 ranks first; " + "\n");
}

// Each training of it has another factor on its loss.
class Drifting : public Task {
 public:
  explicit Drifting(const TaskSite& site) : site_(site) {
    static std::atomic<int> made = 0;
    factor_ = 1 + 0.25 * made++;
  }
  Module& model() override { return net_; }
  Data data() override {
    return make_data(site_,
                     made_dataset(24, "rows",
                                  [](std::int64_t i) {
                                    return Example().set("x", Numbers{{2}, {1, static_cast<float>(i) / 8}});
                                  }),
                     0, stack());
  }
  Loss training_step(const Batch& batch, Forward& pass) override {
    return scale(mean(square(net_(input(batch, "x", pass)))), factor_);
  }

 private:
  TaskSite site_;
  double factor_ = 1;
  Linear net_{2, 1};
};

// At a rate that changes no weight the losses differ alone.
TEST(Compare, TellsWhereATrainingDoesNotRepeatItself) {
  const TemporaryFolder place;
  static const auto keys = keys_of_task<Drifting>("drifting");
  for (const char* rate : {"optimizer.lr=0.1", "optimizer.lr=1e-30"}) {
    const Config config = task_run(keys, "steps: 3\nbatch: {global: 4, micro: 4}\nthreads: 1\n", place, "run",
                                   {rate, "optimizer.type=SGD", "strategy=ddp-fp32"});
    EXPECT_TRUE(compare_by(1, config, {}, {.steps = 2, .repeats = 1}).at(0).repeats);
    EXPECT_FALSE(compare_by(1, config, {}, {.steps = 2, .repeats = 2}).at(0).repeats) << rate;
  }
}

TEST(Compare, NeedsTwoStepsAndTrainsAsOftenAsItIsAsked) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"model.layers=1", "batch.global=2", "batch.micro=1"});
  EXPECT_EQ(error_of([&] { compare_by(1, config, {}, {.steps = 1, .repeats = 1}); }),
            "a comparison needs 2 steps at least, not 1");
  EXPECT_EQ(compare_by(1, config, {}, {.steps = 2, .repeats = 0}).size(), 0u);
  const auto once = compare_by(1, config, {}, {.steps = 2, .repeats = 1});
  ASSERT_EQ(once.size(), 1u);
  EXPECT_EQ(once[0].confidence_ms, 0);
  EXPECT_EQ(once[0].loss, compare_by(1, config, {}, {.steps = 2, .repeats = 2})[0].loss);
  EXPECT_NE(once[0].loss, compare_by(1, config, {}, {.steps = 3, .repeats = 1})[0].loss);
}

TEST(Compare, RefusesWhatItCannotCompare) {
  const TemporaryFolder place;
  EXPECT_THROW(compare_by(2, small_run(place, "run"), {.strategies = {"zero1-auto"}}), Error);
  EXPECT_THROW(compare_by(2, small_run(place, "run"), {.strategies = {"zero7"}}), Error);
  EXPECT_THROW(compare_by(2, small_run(place, "run"), {.algorithms = {"rings"}}), Error);
  EXPECT_THROW(compare_by(2, small_run(place, "run"), {.algorithms = {"backend"}}), Error);
  EXPECT_THROW(compare_by(2, small_run(place, "run"), {.buckets = {"0"}}), Error);
  for (const char* bad : {"int9", "topk:0", "topk:2", "topk:", "powersgd:0", "powersgd:1.5", "int8:3", "int8}, x: {"})
    EXPECT_THROW(compare_by(2, small_run(place, "run"), {.compressions = {bad}}), Error) << bad;
  EXPECT_THROW(compare_by(2, small_run(place, "run", {"sharding.group=1"}), {.compressions = {"powersgd:2"}}), Error);
  EXPECT_THROW(compare_by(2, small_run(place, "run", {"swa={start: 2, rate_factor: 0.1}"}), {}), Error);
  EXPECT_THROW(compare_by(7, small_run(place, "run"), {.strategies = {"ddp-fp32"}}), Error);
}

}  // namespace
}  // namespace keel
