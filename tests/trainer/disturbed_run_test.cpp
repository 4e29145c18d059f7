// Training runs whose ranks come late or fail in any collective: threads, processes that TCP connects, and processes of
// MPI.

#include <algorithm>
#include <random>
#include <regex>

#include "keel/dist/comm/decorators.h"
#include "tests/by_commit.h"
#include "tests/dist/comm/ranks.h"
#include "tests/support.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

constexpr int kRanks = 3;

// A folder that all ranks see. Every process of the program makes one, and they end together.
class CommonFolder {
 public:
  CommonFolder() : path_(told_by_first_process(own_.path())) {}
  ~CommonFolder() { told_by_first_process(""); }
  CommonFolder(const CommonFolder&) = delete;
  CommonFolder& operator=(const CommonFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  TemporaryFolder own_;
  std::string path_;
};

CommunicatorOptions impatient() {
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(20);
  return options;
}

void train_once(const Config& config, Communicator& ranks) {
  Recorder recorder;
  train(config, recorder, ranks);
}

Config config_of_run(const CommonFolder& place, const std::string& run, const std::string& name,
                     const std::string& more) {
  std::vector<std::string> settings = {"steps=6", "checkpoint.every=2", "scheduler.warmup=1", "loss_scale.initial=64",
                                       more};
  if (name == "lbfgs") {
    settings.insert(settings.end(), {"strategy=zero2-fp32", "optimizer={type: LBFGS, lr: 0.5, max_iterations: 2}",
                                     "clip=0", "scheduler.min_lr=0", "model.dropout=0"});
  } else {
    settings.push_back("strategy=" + std::regex_replace(name, std::regex("_"), "-"));
  }
  return small_run(place.path(), run, settings);
}

// How many collectives the first rank asks for in a run.
std::int64_t asked_in(const Config& config) {
  const auto by_rank = results(
      kRanks,
      [&](Communicator& direct) {
        std::int64_t asked = 0;
        WatchedCommunicator ranks(direct, [&](std::int64_t at, const Collective&) { asked = at + 1; });
        train_once(config, ranks);
        return std::vector<double>{static_cast<double>(asked)};
      },
      impatient());
  return static_cast<std::int64_t>(by_rank.front().front());
}

constexpr const char* kRuns[] = {"ddp_fp32", "zero1_fp32", "zero2_bf16", "zero3_fp16", "lbfgs"};

// How much is tried: a fault before each collective, or what fits into a few seconds.
enum class Density { all, some };

// Of so many collectives, those before which a rank fails. The last checkpoint is made among the last ones. Of
// processes one fails that the commit decides, for each run another one.
std::vector<std::int64_t> faults_among(std::int64_t asked, const std::string& name, Density density) {
  constexpr std::int64_t kLast = 12;
  if (density == Density::some && has_processes()) {
    std::mt19937 random = by_commit();
    const auto place = std::find(std::begin(kRuns), std::end(kRuns), name) - std::begin(kRuns);
    random.discard(static_cast<std::uint64_t>(2 * place));
    const bool is_late = random() % 2 == 0;
    const auto drawn = static_cast<std::int64_t>(random());
    return {is_late ? asked - 1 - drawn % kLast : drawn % asked};
  }
  std::vector<std::int64_t> faults;
  for (std::int64_t at = 0; at < asked; at += density == Density::some && asked - at > kLast ? 1 + asked / 16 : 1)
    faults.push_back(at);
  return faults;
}

void expect_end_and_the_same_bits(const std::string& name, Density density) {
  if (!has_ranks(kRanks)) GTEST_SKIP() << "runs where the program has " << kRanks << " ranks";
  const CommonFolder place;
  const Config whole = config_of_run(place, "whole", name, "resume=never");
  const std::int64_t asked = asked_in(whole);
  const std::string weights = weights_of(whole);
  EXPECT_GT(asked, 60);
  for (const std::int64_t fault : faults_among(asked, name, density)) {
    const int failing = static_cast<int>(fault) % kRanks;
    const std::string reason = concat("a fault before collective ", fault);
    const Config config = config_of_run(place, concat("fault", fault), name, "resume=auto");
    const std::vector<std::string> said = messages(
        kRanks,
        [&](Communicator& direct) {
          WatchedCommunicator ranks(direct, [&](std::int64_t at, const Collective&) {
            if (at == fault && direct.rank() == failing) throw Error(reason, ErrorKind::io);
          });
          train_once(config, ranks);
        },
        impatient());
    for (int r = 0; r < kRanks; ++r)
      EXPECT_NE(said[static_cast<std::size_t>(r)].find(reason), std::string::npos)
          << reason << " of rank " << failing << ": rank " << r << " says '" << said[static_cast<std::size_t>(r)]
          << "'";
    on_ranks(
        kRanks, [&](Communicator& ranks) { train_once(config, ranks); }, impatient());
    EXPECT_TRUE(weights_of(config) == weights) << reason << " of rank " << failing;
  }
}

void expect_the_same_bits(const std::string& name, Density density) {
  if (!has_ranks(kRanks)) GTEST_SKIP() << "runs where the program has " << kRanks << " ranks";
  const CommonFolder place;
  const Config prompt = config_of_run(place, "prompt", name, "resume=never");
  on_ranks(
      kRanks, [&](Communicator& ranks) { train_once(prompt, ranks); }, impatient());
  const std::uint64_t seeds = density == Density::all ? 20 : has_processes() ? 1 : 2;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const Config late = config_of_run(place, concat("late", seed), name, "resume=never");
    on_ranks(
        kRanks,
        [&](Communicator& direct) {
          DelayedCommunicator ranks(direct, seed, std::chrono::microseconds(500));
          train_once(late, ranks);
        },
        impatient());
    EXPECT_TRUE(weights_of(late) == weights_of(prompt)) << seed;
  }
}

std::string name_of_case(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

struct DisturbedRun : ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, DisturbedRun, ::testing::ValuesIn(kRuns), name_of_case);

TEST_P(DisturbedRun, EndsEverywhereWithTheReasonWhereARankFailsAndGoesOnToTheSameBits) {
  expect_end_and_the_same_bits(GetParam(), Density::some);
}
TEST_P(DisturbedRun, LearnsTheSameBitsHoweverLateRanksCome) { expect_the_same_bits(GetParam(), Density::some); }

struct SlowDisturbedRun : ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(SlowOf, SlowDisturbedRun, ::testing::ValuesIn(kRuns), name_of_case);

TEST_P(SlowDisturbedRun, EndsEverywhereWithTheReasonWhereverARankFailsAndGoesOnToTheSameBits) {
  expect_end_and_the_same_bits(GetParam(), Density::all);
}
TEST_P(SlowDisturbedRun, LearnsTheSameBitsHoweverLateRanksCome) { expect_the_same_bits(GetParam(), Density::all); }

}  // namespace
}  // namespace keel
