// Training runs whose ranks come late or fail in any collective, and in which order a step asks for its collectives.

#include <atomic>
#include <regex>

#include "keel/dist/comm/decorators.h"
#include "tests/support.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

using Watch = WatchedCommunicator::Callback;

// Trains as one rank of those that `watch` sees the collectives of.
void train_watched(Communicator& direct, const Config& config, const Watch& watch) {
  WatchedCommunicator ranks(direct, watch);
  Recorder recorder;
  train(config, recorder, ranks);
}

struct DisturbedRun : ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, DisturbedRun,
                         ::testing::Values("ddp_fp32", "zero1_fp32", "zero2_bf16", "zero3_fp16", "lbfgs"),
                         [](const auto& info) { return info.param; });

Config config_of_run(const TemporaryFolder& place, const std::string& run, const std::string& name,
                     const std::string& more) {
  std::vector<std::string> settings = {"steps=6", "checkpoint.every=2", "scheduler.warmup=1", "loss_scale.initial=64",
                                       more};
  if (name == "lbfgs") {
    settings.insert(settings.end(), {"strategy=zero2-fp32", "optimizer={type: LBFGS, lr: 0.5, max_iterations: 2}",
                                     "clip=0", "scheduler.min_lr=0", "model.dropout=0"});
  } else {
    settings.push_back("strategy=" + std::regex_replace(name, std::regex("_"), "-"));
  }
  return small_run(place, run, settings);
}

TEST_P(DisturbedRun, EndsEverywhereWithTheReasonWhereverARankFailsAndGoesOnToTheSameBits) {
  constexpr int kRanks = 3;
  const TemporaryFolder place;
  const Config whole = config_of_run(place, "whole", GetParam(), "resume=never");
  std::atomic<std::int64_t> asked = 0;
  run_ranks(kRanks, [&](Communicator& direct) {
    train_watched(direct, whole, [&](std::int64_t at, const Collective&) {
      if (direct.rank() == 0) asked = at + 1;
    });
  });
  const std::string weights = weights_of(whole);
  EXPECT_GT(asked, 60);
  // Here and there, and everywhere at the end, where the last checkpoint is made.
  std::vector<std::int64_t> faults;
  for (std::int64_t at = 0; at<asked; at += asked - at> 12 ? 1 + asked / 16 : 1) faults.push_back(at);
  for (const std::int64_t fault : faults) {
    const int failing = static_cast<int>(fault) % kRanks;
    const std::string run = concat("fault", fault), reason = concat("a fault before collective ", fault);
    const Config config = config_of_run(place, run, GetParam(), "resume=auto");
    std::atomic<int> told = 0;
    const auto train = [&](Communicator& direct) {
      try {
        train_watched(direct, config, [&](std::int64_t at, const Collective&) {
          if (at == fault && direct.rank() == failing) throw Error(reason, ErrorKind::io);
        });
      } catch (const Error& error) {
        told += std::string(error.what()).find(reason) != std::string::npos;
        EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
        throw;
      }
    };
    EXPECT_THROW(run_ranks(kRanks, train), Error);
    EXPECT_EQ(told, kRanks) << reason << " of rank " << failing;
    train_by(kRanks, config);
    EXPECT_TRUE(weights_of(config) == weights) << reason << " of rank " << failing;
  }
}

TEST_P(DisturbedRun, LearnsTheSameBitsHoweverLateRanksCome) {
  const TemporaryFolder place;
  const Config prompt = config_of_run(place, "prompt", GetParam(), "resume=never");
  train_by(3, prompt);
  for (const std::uint64_t seed : {1, 2}) {
    const Config late = config_of_run(place, concat("late", seed), GetParam(), "resume=never");
    run_ranks(3, [&](Communicator& direct) {
      DelayedCommunicator ranks(direct, seed, std::chrono::microseconds(500));
      Recorder recorder;
      train(late, recorder, ranks);
    });
    EXPECT_TRUE(weights_of(late) == weights_of(prompt)) << seed;
  }
}

// A word of a few bytes behind a model's parameters would hold up every step on a slow network.
TEST(TrainingByRanks, SayTheirWordOfAStepBeforeItsParametersTravel) {
  const TemporaryFolder place;
  for (const char* strategy : {"strategy=zero1-fp32", "strategy=zero2-fp32"}) {
    const Config config = small_run(place, strategy + 9, {strategy, "eval.every=100"});
    std::string order;  // g: of gradients, p: of parameters, w: words, of one rank
    run_ranks(2, [&](Communicator& direct) {
      train_watched(direct, config, [&](std::int64_t, const Collective& asked) {
        if (direct.rank() != 0) return;
        if (asked.kind == CollectiveKind::reduce_scatter) order += 'g';
        else if (asked.kind == CollectiveKind::all_gather) order += asked.dtype() == DType::f32 ? 'p' : 'w';
      });
    });
    std::smatch steps;
    EXPECT_TRUE(std::regex_search(order, steps, std::regex("(g+w+p+){4}"))) << strategy << ": " << order;
  }
}

}  // namespace
}  // namespace keel
