// Runs that their time ends, and their learning rates.

#include "keel/trainer/run_time.h"

#include <gtest/gtest.h>

#include <cmath>

#include "keel/trainer/checkpoint.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

constexpr double kPi = 3.14159265358979323846;

Config timed(const std::string& more = "") {
  return parse_config(concat("steps: 1000000\ntime_limit: 20\ndata: {type: addition}\noptimizer: {lr: 0.1}\n", more),
                      "c.yaml");
}

TEST(RunTime, ARunTakesAsManyStepsAsItsTimeAllowsAtItsMeanSpeed) {
  const Config config = timed();
  EXPECT_EQ(expected_steps(config, {}, 0), 1000000) << "no speed is known";
  EXPECT_EQ(expected_steps(config, {.seconds = 5, .steps = 100}, 100), 400);
  EXPECT_EQ(expected_steps(config, {.seconds = 19.9, .steps = 398}, 398), 400);
  EXPECT_EQ(expected_steps(config, {.seconds = 19.99, .steps = 398}, 399), 400) << "one that began is done";
  EXPECT_EQ(expected_steps(config, {.seconds = 20.5, .steps = 398}, 398), 399);
  EXPECT_EQ(expected_steps(config, {.seconds = 1e-6, .steps = 100}, 100), 1000000) << "the steps end it first";
  // The clock ran after 1,000 steps alone: 100 of them took a quarter of the time.
  EXPECT_EQ(expected_steps(config, {.seconds = 5, .since = 1000, .steps = 1100}, 1100), 1400);
  EXPECT_EQ(expected_steps(parse_config("steps: 7\ndata: {type: addition}", "c.yaml"), {.seconds = 5, .steps = 2}, 2),
            7)
      << "no limit";
}

TEST(RunTime, TheCurveIsThatOfARunWhichTheTimeAllows) {
  const Config config = timed("scheduler: {type: cosine, warmup: 50, min_lr: 0.01}");
  RunTime time(config, {});
  EXPECT_EQ(time.rates_after(10).rate(10), LearningRate(config).rate(10)) << "before a speed is known";
  for (const std::int64_t done : {60, 100, 250, 399}) {
    time.hear(static_cast<double>(done) / 20, done);  // 400 steps in 20 s
    const double part = static_cast<double>(done - 50) / 350;
    EXPECT_NEAR(time.rates_after(done).rate(done), 0.01 + 0.09 * (1 + std::cos(kPi * part)) / 2, 1e-12) << done;
  }
  time.hear(1, 20);
  EXPECT_EQ(time.rates_after(20).rate(20), LearningRate(config).rate(20)) << "a warm-up keeps its count of steps";
}

TEST(RunTime, AWarmUpThatDoesNotFitIntoTheTimeGoesOnToTheEnd) {
  const Config config = timed("scheduler: {type: cosine, warmup: 50}");
  RunTime time(config, {});
  time.hear(10, 20);  // 40 steps
  EXPECT_EQ(time.rates_after(30).rate(30), LearningRate(config).rate(30));
}

TEST(RunTime, ARunThatItsStepsEndHasTheRatesOfOneWithoutALimit) {
  const Config config = parse_config(
      "steps: 100\ntime_limit: 20\ndata: {type: addition}\nscheduler: {type: linear, warmup: 0.1}", "c.yaml");
  RunTime time(config, {});
  const LearningRate plain(config);
  for (std::int64_t done = 0; done < 100; ++done) {
    EXPECT_EQ(time.rates_after(done).rate(done), plain.rate(done));
    time.hear(0.01 * static_cast<double>(done + 1), done + 1);
  }
}

TEST(RunTime, HearsAClockThatWasAskedWhereThereIsALimit) {
  const Config limited = timed(), free = parse_config("steps: 9\ndata: {type: addition}", "c.yaml");
  RunTime with(limited, {}), without(free, {});
  for (RunTime* const time : {&with, &without}) {
    time->hear(5, 100);
    time->hear(0, 110);  // not asked
  }
  EXPECT_EQ(with.spent().seconds, 5);
  EXPECT_EQ(with.spent().steps, 100);
  EXPECT_EQ(without.spent().seconds, 0);
  EXPECT_EQ(without.spent().steps, 0);
}

TEST(RunTime, IsKeptByACheckpointHoweverShortItIs) {
  TrainState state;
  EXPECT_FALSE(json_of(state).contains("time"));
  for (const double seconds : {1e-3, 1.0, 2.0}) {
    state.time = {.seconds = seconds, .since = 3};
    EXPECT_EQ(json_of(state).at("time").at("seconds").number(), seconds);
    EXPECT_EQ(json_of(state).at("time").at("since").integer(), 3);
  }
}

// Shows what the run said of the time that is left.
class TimeLeft : public Recorder {
 public:
  void on_step(const StepReport& report) override {
    Recorder::on_step(report);
    left.push_back(*report.seconds_left);
    EXPECT_EQ(report.time_limit, 1000);
    EXPECT_LE(*report.seconds_left, report.time_limit - report.seconds);
  }
  std::vector<double> left;
};

TEST(RunTime, IsLeftForTheStepsThatAreLeft) {
  const TemporaryFolder place;
  TimeLeft told;
  train(small_run(place, "run", {"steps=3", "time_limit=1000", "eval.every=0", "checkpoint.every=0"}), told);
  ASSERT_EQ(told.left.size(), 3u);
  EXPECT_GT(told.left[0], 0);
  EXPECT_GT(told.left[1], 0);
  EXPECT_EQ(told.left[2], 0);
}

// Shows what the run said of its rates.
class Rates : public Recorder {
 public:
  using Recorder::Recorder;
  void on_step(const StepReport& report) override {
    Recorder::on_step(report);
    rates.push_back(report.lr);
  }
  std::vector<double> rates;
};

std::vector<std::string> by_time(std::vector<std::string> more = {}) {
  more.insert(more.end(), {"steps=1000000", "eval.every=0", "checkpoint.every=0", "log.every=1000000", "threads=1"});
  return more;
}

TEST(RunTime, ARunThatEndsByTimeEndsItsCurveThere) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", by_time({"time_limit=0.5"}));
  Rates rates;
  const TrainResult result = train(config, rates);
  EXPECT_EQ(result.end, TrainEnd::time_limit);
  ASSERT_GT(result.step, 10);
  EXPECT_LT(result.step, 1000000);
  const double highest = *std::max_element(rates.rates.begin(), rates.rates.end());
  EXPECT_GT(highest, 5e-3);
  // The cosine is flat at its end; of a million steps it would be so at its beginning.
  EXPECT_LT(rates.rates.back(), 2e-3);
  const TrainState state = read_whole(RunFolder(config.run).checkpoint(result.step));
  EXPECT_GE(state.time.seconds, 0.5);
  EXPECT_EQ(state.time.since, 0);
  EXPECT_EQ(state.time.steps, result.step);

  // All of it is used, and said to be.
  Recorder again;
  EXPECT_EQ(train(small_run(place, "run", by_time({"time_limit=0.5", "resume=auto"})), again).end,
            TrainEnd::time_limit);
  EXPECT_TRUE(again.losses.empty());
  EXPECT_NE(again.messages.find("; to go on, raise time_limit"), std::string::npos) << again.messages;
}

TEST(RunTime, AResumedRunGoesOnWithItsCurveAndItsTime) {
  const TemporaryFolder place;
  Rates first(20), second;  // a slow machine does 20 steps in 3 seconds, too
  train(small_run(place, "run", by_time({"time_limit=3"})), first);
  const TrainState state = read_whole(RunFolder(place / "run").checkpoint(20));
  EXPECT_GT(state.time.seconds, 0);
  EXPECT_LT(state.time.seconds, 3);
  const Config rest = small_run(place, "run", by_time({"time_limit=3", "resume=auto"}));
  RunTime time(rest, state.time);
  const double expected = time.rates_after(20).rate(20);
  const TrainResult result = train(rest, second);
  EXPECT_EQ(second.rates.front(), expected) << "a rule of what the checkpoint says";
  EXPECT_EQ(result.end, TrainEnd::time_limit);
  EXPECT_LT(second.rates.back(), 2e-3);
}

TEST(RunTime, AllRanksHaveTheRatesOfTheFirstRanksClock) {
  const TemporaryFolder place;
  for (const char* strategy : {"ddp-fp32", "zero3-fp32"}) {
    const Config config = small_run(place, strategy, by_time({"time_limit=0.5", concat("strategy=", strategy)}));
    std::vector<Rates> ranks(3);
    std::vector<TrainResult> results(3);
    run_ranks(3, [&](Communicator& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      results[rank] = train(config, ranks[rank], group);
    });
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(results[rank].end, TrainEnd::time_limit);
      EXPECT_EQ(results[rank].step, results[0].step);
      EXPECT_TRUE(ranks[rank].rates == ranks[0].rates) << strategy << ", rank " << rank;
    }
    EXPECT_LT(ranks[0].rates.back(), 3e-3) << strategy;
  }
}

TEST(RunTime, ASessionThatEndsLeavesTheCurveToTheSteps) {
  const TemporaryFolder place;
  const std::vector<std::string> more = {"steps=100000", "eval.every=0", "checkpoint.every=0", "session_limit=0.05"};
  const Config config = small_run(place, "run", more);
  Rates first, second;
  const TrainResult result = train(config, first);
  EXPECT_EQ(result.end, TrainEnd::time_limit);
  EXPECT_EQ(read_text_file(concat(RunFolder(config.run).checkpoint(result.step), "/manifest.json")).find("\"time\""),
            std::string::npos);
  Config rest = small_run(place, "run", more);
  rest.resume = "auto";
  EXPECT_GT(train(rest, second).step, result.step) << "each session has its own";
  const LearningRate rates(config);
  for (std::size_t i = 0; i < first.rates.size(); ++i)
    EXPECT_EQ(first.rates[i], rates.rate(static_cast<std::int64_t>(i)));
  EXPECT_EQ(second.rates.front(), rates.rate(result.step));
}

TEST(RunTime, GoesOnFromTheFirstSecondOn) {
  const TemporaryFolder place;
  Recorder first(4), second(5);
  train(small_run(place, "run", by_time({"time_limit=1000"})), first);
  train(small_run(place, "run", by_time({"time_limit=1000", "resume=auto"})), second);
  const RunFolder folder(place / "run");
  const TimeSpent before = read_whole(folder.checkpoint(4)).time, after = read_whole(folder.checkpoint(5)).time;
  EXPECT_GT(before.seconds, 0);
  EXPECT_GT(after.seconds, before.seconds);
  EXPECT_EQ(after.since, 0) << "its speed is a mean over all steps";
}

}  // namespace
}  // namespace keel
