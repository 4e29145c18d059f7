// Collectives, sizes and bandwidths by name and by formula.

#include "keel/dist/lab/exercise.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "keel/dist/comm/decorators.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/dist/lab/contestant.h"
#include "keel/dist/lab/measurement.h"
#include "keel/dist/lab/sizes.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace keel::lab {
namespace {

using testing::error_of;

// Acceptance check 1, by the table of nccl-tests (PERFORMANCE.md).
TEST(BusBandwidth, IsTheAlgorithmsTimesTheFactorOfTheCollective) {
  struct Row {
    const char* collective;
    double factors[3];  // of 2, 3 and 8 ranks
  };
  constexpr Row kRows[] = {{"all_reduce", {1, 4.0 / 3, 1.75}},
                           {"reduce_scatter", {0.5, 2.0 / 3, 0.875}},
                           {"all_gather", {0.5, 2.0 / 3, 0.875}},
                           {"broadcast", {1, 1, 1}},
                           {"all_to_all", {0.5, 2.0 / 3, 0.875}},
                           {"sendrecv", {1, 1, 1}},
                           {"reduce", {1, 1, 1}},
                           {"gather", {0.5, 2.0 / 3, 0.875}},
                           {"scatter", {0.5, 2.0 / 3, 0.875}},
                           {"reduce_scatter_v", {0.5, 2.0 / 3, 0.875}},
                           {"all_gather_v", {0.5, 2.0 / 3, 0.875}},
                           {"all_to_all_v", {0.5, 2.0 / 3, 0.875}},
                           {"barrier", {1, 1, 1}}};
  std::set<std::string_view> seen;
  for (const Row& row : kRows) {
    seen.insert(row.collective);
    for (int i = 0; i < 3; ++i)
      EXPECT_DOUBLE_EQ(find_exercise(row.collective)
                           .bus_factor(i == 0   ? 2
                                       : i == 1 ? 3
                                                : 8),
                       row.factors[i])
          << row.collective;
  }
  EXPECT_EQ(seen.size(), exercises().size()) << "a collective has no row";
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(3'000'000, 1'000), 3);
  EXPECT_EQ(algorithm_bandwidth(8, 0), 0);
}

TEST(BusBandwidth, OfWhatIsMeasuredFollowsFromItsTime) {
  for (const int n : {1, 2, 3, 8})
    run_ranks(n, [&](Communicator& ranks) {
      const Context context = testing::context(1);
      const std::vector<double> clocks(static_cast<std::size_t>(n));
      for (const Exercise& exercise : exercises()) {
        if (exercise.kind == CollectiveKind::send && n == 1) continue;
        const std::int64_t count = exercise.kind == CollectiveKind::barrier ? 0 : 8 * 9 * 5;
        const Tensor a = zeros(context, {count + 1}), b = zeros(context, {count + 1});
        const Call call = make_call(exercise, ranks, count, !exercise.out_of_place, a, b);
        const Timing timing = measure(ranks, ranks, call, {.calls = 4, .warmup = 1, .seconds = 0}, clocks);
        if (ranks.rank() != 0) continue;
        EXPECT_EQ(timing.calls, 4);
        EXPECT_DOUBLE_EQ(timing.algbw, 4.0 * static_cast<double>(count) / timing.time_us * 1e-3);
        EXPECT_DOUBLE_EQ(timing.busbw, timing.algbw * exercise.bus_factor(n));
        EXPECT_LE(timing.min_us, timing.time_us * (1 + 1e-12));
        EXPECT_GE(timing.max_us, timing.time_us * (1 - 1e-12));
        EXPECT_LE(timing.p25_us, timing.p50_us);
        EXPECT_LE(timing.p50_us, timing.p75_us);
        EXPECT_LE(timing.p75_us, timing.p95_us);
        EXPECT_GT(timing.first_us, 0);
        EXPECT_EQ(timing.straggler < 0, n == 1);
        EXPECT_EQ(timing.skew_us == 0, n == 1);
        EXPECT_EQ(timing.wrong, std::optional<std::int64_t>(0));
      }
    });
}

TEST(Overlap, IsTheShareOfACallThatComputingDidNotWaitFor) {
  EXPECT_DOUBLE_EQ(overlap_of(10, 10, 20), 0);
  EXPECT_DOUBLE_EQ(overlap_of(10, 10, 15), 0.5);
  EXPECT_DOUBLE_EQ(overlap_of(10, 10, 10), 1);
  EXPECT_DOUBLE_EQ(overlap_of(10, 10, 9), 1) << "no more than all";
  EXPECT_DOUBLE_EQ(overlap_of(10, 10, 25), 0) << "no less than nothing";
  EXPECT_DOUBLE_EQ(overlap_of(0, 1, 1), 0);
}

// Asks, computes with as many polls as asked for, and waits; the result is checked all the same.
TEST(Overlap, ComputesBetweenAskingAndWaitingAndPollsMeanwhile) {
  run_ranks(2, [](Communicator& ranks) {
    class Counting : public CommunicatorDecorator {
     public:
      using CommunicatorDecorator::CommunicatorDecorator;
      Work begin(const Collective& collective) override {
        ++asked;
        return inner_.begin(collective);
      }
      void poll() override {
        ++polls;
        inner_.poll();
      }
      std::int64_t asked = 0, polls = 0;
    };
    const Context context = testing::context(1);
    const Tensor a = zeros(context, {40}), b = zeros(context, {40});
    const Call call = make_call(find_exercise("all_reduce"), ranks, 40, false, a, b);
    for (const int polls : {0, 3}) {
      Counting counting(ranks);
      const MeasureOptions options{.calls = 5, .warmup = 1, .seconds = 0, .polls = polls};
      const Timing timing = measure(counting, ranks, call, options, {0, 0});
      EXPECT_EQ(counting.polls, 5 * polls) << "not while it computes alone";
      EXPECT_EQ(counting.asked, 1 + 5 + 5 + 1) << "warming up, timed, timed with computing, checked";
      if (ranks.rank() != 0) continue;
      EXPECT_GT(timing.computing_us.value(), 0);
      EXPECT_GT(timing.together_us.value(), 0);
      EXPECT_GE(timing.overlap.value(), 0);
      EXPECT_LE(timing.overlap.value(), 100);
      EXPECT_EQ(timing.wrong, std::optional<std::int64_t>(0));
    }
    EXPECT_FALSE(measure(ranks, ranks, call, {.calls = 1, .seconds = 0}, {0, 0}).overlap.has_value());
  });
}

// Calls on tensors of their own, all of them checked; what is told is of one.
TEST(CallsAtOnce, BeginBeforeTheFirstIsWaitedForAndAreAllChecked) {
  run_ranks(2, [](Communicator& ranks) {
    const Context context = testing::context(1);
    const Tensor a = zeros(context, {40}), b = zeros(context, {40});
    for (const int broken : {-1, 0, 3}) {
      std::vector<Call> calls;
      for (std::int64_t i = 0; i < 4; ++i)
        calls.push_back(make_call(find_exercise("all_reduce"), ranks, 10, false, a.slice(0, 10 * i, 10 * i + 10),
                                  b.slice(0, 10 * i, 10 * i + 10)));
      // Of what a check asks for, one is left out.
      std::int64_t asked = 0;
      class LeavesOut : public CommunicatorDecorator {
       public:
        LeavesOut(Communicator& inner, std::int64_t& asked, std::int64_t which)
            : CommunicatorDecorator(inner), asked_(asked), which_(which) {}
        Work begin(const Collective& collective) override {
          return asked_++ == which_ ? Work() : inner_.begin(collective);
        }

       private:
        std::int64_t& asked_;
        std::int64_t which_;
      } measured(ranks, asked, broken < 0 ? -1 : 4 * (1 + 2) + broken);
      const Timing timing = measure(measured, ranks, calls, {.calls = 2, .warmup = 1, .seconds = 0}, {0, 0});
      EXPECT_EQ(asked, 4 * (1 + 2 + 1));
      if (ranks.rank() == 0) { EXPECT_EQ(*timing.wrong, broken < 0 ? 0 : 2 * 10); }
      if (ranks.rank() == 0) { EXPECT_DOUBLE_EQ(timing.algbw, 40 / timing.time_us * 1e-3); }
    }
  });
}

TEST(Barrier, StandsBetweenCallsByOption) {
  run_ranks(2, [](Communicator& ranks) {
    const Context context = testing::context(1);
    const Tensor a = zeros(context, {4}), b = zeros(context, {4});
    const Call call = make_call(find_exercise("all_gather"), ranks, 4, false, a, b);
    for (const bool barrier : {false, true}) {
      std::int64_t barriers = 0;
      WatchedCommunicator watched(
          ranks, [&](std::int64_t, const Collective& one) { barriers += one.kind == CollectiveKind::barrier; });
      measure(ranks, watched, call, {.calls = 6, .warmup = 1, .seconds = 0, .check = false, .barrier = barrier},
              {0, 0});
      EXPECT_EQ(barriers, 2 + (barrier ? 6 : 0)) << "before warming up and before the first";
    }
  });
}

TEST(UnevenCounts, GiveEachRankItsShareAndTogetherAll) {
  EXPECT_EQ(uneven_counts(60, 4), (Counts{6, 12, 18, 24}));
  for (const int n : {1, 2, 3, 7, 100})
    for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{13}, std::int64_t{1} << 50}) {
      std::int64_t sum = 0;
      for (const std::int64_t each : uneven_counts(count, n)) {
        EXPECT_GE(each, 0);
        sum += each;
      }
      EXPECT_EQ(sum, count) << n;
    }
}

// Acceptance check 13.
TEST(Skew, NamesTheRankThatComesLate) {
  constexpr int n = 3;
  for (int late = 0; late < n; ++late)
    run_ranks(n, [&](Communicator& ranks) {
      const Context context = testing::context(1);
      const Tensor a = zeros(context, {4}), b = zeros(context, {4});
      const Call call = make_call(find_exercise("all_reduce"), ranks, 4, false, a, b);
      MeasureOptions options{.calls = 5, .warmup = 1, .seconds = 0};
      if (ranks.rank() == late)
        options.before_call = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
      const Timing timing = measure(ranks, ranks, call, options, clock_offsets(ranks));
      if (ranks.rank() == 0) { EXPECT_EQ(timing.straggler, late); }
    });
}

TEST(Warmup, TakesAsManyCallsAsAskedForAndTimesThatMany) {
  run_ranks(2, [](Communicator& ranks) {
    const Context context = testing::context(1);
    const Tensor a = zeros(context, {4}), b = zeros(context, {4});
    const Call call = make_call(find_exercise("all_reduce"), ranks, 4, false, a, b);
    std::int64_t calls = 0;
    WatchedCommunicator watched(ranks, [&](std::int64_t, const Collective&) { ++calls; });
    for (const int warmup : {0, 1, 7}) {
      calls = 0;
      measure(watched, ranks, call, {.calls = 3, .warmup = warmup, .seconds = 0, .check = false}, {0, 0});
      EXPECT_EQ(calls, std::max(warmup, 1) + 3) << warmup;
    }
    calls = 0;
    const Timing timing = measure(watched, ranks, call, {.seconds = 0.01, .check = false}, {0, 0});
    EXPECT_GE(calls, 5 + 20);
    if (ranks.rank() == 0) {
      EXPECT_GE(timing.calls, 20);
      EXPECT_LE(timing.calls, 1000);
    }
  });
}

TEST(Sizes, AreReadAndWrittenAsPeopleDo) {
  for (const auto& [text, bytes] :
       std::initializer_list<std::pair<const char*, std::int64_t>>{{"0", 0},
                                                                   {"8", 8},
                                                                   {"8B", 8},
                                                                   {"1K", 1024},
                                                                   {"64M", 64 << 20},
                                                                   {"1.5k", 1536},
                                                                   {"2GiB", std::int64_t{2} << 30},
                                                                   {"1e3", 1000}})
    EXPECT_EQ(parse_size(text), bytes) << text;
  for (const char* text : {"", "x", "8X", "-8", "1.5", "8iB", "M", "64MM", "64 M", "nan", "inf", "1e30"})
    EXPECT_NE(error_of([&] { parse_size(text); }).find("is no size"), std::string::npos) << text;
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1000}, std::int64_t{1} << 20,
                                   std::int64_t{3} << 30, (std::int64_t{1} << 20) + 1})
    EXPECT_EQ(parse_size(size_text(bytes)), bytes);
}

TEST(Sizes, OfASweepGrowToTheEndAndEnd) {
  EXPECT_EQ(size_sweep(8, 64, 2), (std::vector<std::int64_t>{8, 16, 32, 64}));
  EXPECT_EQ(size_sweep(8, 8, 2), std::vector<std::int64_t>{8});
  EXPECT_EQ(size_sweep(0, 100, 2), std::vector<std::int64_t>{0});
  for (const double factor : {1.0001, 1.3, 3.7}) {
    const std::vector<std::int64_t> sizes = size_sweep(1, 500, factor);
    for (std::size_t i = 1; i < sizes.size(); ++i) EXPECT_GT(sizes[i], sizes[i - 1]);
    EXPECT_LE(sizes.back(), 500);
  }
  EXPECT_NE(error_of([] { size_sweep(8, 4, 2); }), "");
  for (const double factor : {1.0, 0.5, -2.0, 0.0 / 0.0}) EXPECT_NE(error_of([&] { size_sweep(8, 64, factor); }), "");
}

TEST(Sizes, OfStepsAreThatFarApart) {
  EXPECT_EQ(size_steps(8, 33, 8), (std::vector<std::int64_t>{8, 16, 24, 32}));
  EXPECT_EQ(size_steps(0, 0, 4), std::vector<std::int64_t>{0});
  EXPECT_NE(error_of([] { size_steps(8, 4, 1); }), "");
  EXPECT_NE(error_of([] { size_steps(8, 64, 0); }), "");
  EXPECT_NE(error_of([] { size_steps(0, std::int64_t{1} << 40, 1); }), "");
}

TEST(Names, ThatAreNotThereSayTheNearest) {
  EXPECT_NE(error_of([] { find_exercise("allreduce"); }).find("did you mean 'all_reduce'?"), std::string::npos);
  EXPECT_NE(error_of([] { find_exercise("quux"); }).find("sendrecv"), std::string::npos);
  for (const Exercise& one : exercises()) EXPECT_EQ(&find_exercise(one.name), &one);
}

TEST(Contestants, ThatDoNotApplySayWhyAndTheOthersEnter) {
  run_ranks(2, [](Communicator& ranks) {
    const Fabric fabric{ranks, testing::context(1)};
    for (const Contestant& contestant : algorithm_names()) {
      std::string why;
      const auto own = enter(contestant, fabric, why);
      EXPECT_EQ(own == nullptr, contestant.algorithm.empty()) << contestant.name;
      EXPECT_EQ(why.empty(), own != nullptr);
    }
  });
  for (const Path path : {Path::processors, Path::staged, Path::nccl})
    for (const Exercise& exercise : exercises()) {
      int apply = 0;
      for (const Contestant& contestant : algorithm_names()) apply += why_not(contestant, exercise, path).empty();
      EXPECT_GE(apply, 2) << exercise.name;
    }
}

}  // namespace
}  // namespace keel::lab
