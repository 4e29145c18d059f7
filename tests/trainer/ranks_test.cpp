// Training runs of several ranks.

#include <gtest/gtest.h>

#include <filesystem>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <stdexcept>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/decorators.h"
#include "keel/trainer/checkpoint.h"
#include "tests/support.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

const std::vector<std::string> kStrategies = {"ddp", "zero1", "zero2", "zero3"};

TEST(TrainingByRanks, GivesTheSameBitsInEveryStageAndToEveryRank) {
  for (const std::string precision : {"fp32", "bf16", "fp16"})
    for (const int n : {2, 3, 4}) {
      const TemporaryFolder place;
      std::vector<double> losses;
      std::string weights;
      for (const std::string& stage : kStrategies) {
        const Config config = small_run(
            place, stage,
            {"steps=6", concat("strategy=", stage, '-', precision), "scheduler.warmup=1", "loss_scale.initial=64"});
        const auto recorders = train_by(n, config);
        if (losses.empty()) losses = recorders[0]->losses;
        if (weights.empty()) weights = weights_of(config);
        ASSERT_EQ(losses.size(), 6u);
        for (const auto& recorder : recorders) EXPECT_EQ(recorder->losses, losses) << stage << precision << n;
        EXPECT_EQ(weights_of(config), weights) << stage << precision << n;
      }
    }
}

TEST(TrainingByRanks, FollowsTheCurveOfOneRankForAnyNumberOfThem) {
  const TemporaryFolder place;
  Recorder alone;
  const Config config = small_run(place, "alone");
  train(config, alone);
  for (const int n : {2, 3, 4, 5, 6}) {  // six rows: some ranks have an empty micro-batch
    const auto recorders = train_by(n, small_run(place, concat("by", n), {"strategy=zero3-fp32", "batch.micro=1"}));
    ASSERT_EQ(recorders[0]->losses.size(), alone.losses.size());
    for (std::size_t i = 0; i < alone.losses.size(); ++i)
      EXPECT_NEAR(recorders[0]->losses[i], alone.losses[i], 1e-4 * alone.losses[i]) << n << " ranks, step " << i + 1;
    EXPECT_NEAR(recorders[0]->validation, alone.validation, 1e-4 * alone.validation);
  }
}

// Acceptance check 29, across a restart.
TEST(TrainingByRanks, ContinuesAStoppedRunAsIfItHadNeverStopped) {
  for (const std::string& stage : kStrategies) {
    const TemporaryFolder place;
    const std::string strategy = "strategy=" + stage + "-bf16";
    const Config whole = small_run(place, "whole", {strategy});
    train_by(3, whole);
    train_by(3, small_run(place, "parts", {strategy}), 6);
    const Config rest = small_run(place, "parts", {strategy, "resume=auto"});
    train_by(3, rest);
    EXPECT_EQ(weights_of(rest), weights_of(whole)) << stage;
  }
}

TEST(TrainingByRanks, ContinuesEveryOptimizerFromItsCheckpoint) {
  for (const OptimizerEntry& entry : optimizers()) {
    if (entry.requirements.rows) continue;  // refuses this model: sparse_adam_run_test.cpp, which has tables for it
    const TemporaryFolder place;
    std::string rate = "lr: 1e-3";
    if (entry.has("relative_step")) rate += ", relative_step: false";
    if (entry.has("min_8bit_size")) rate += ", min_8bit_size: 256";
    const std::vector<std::string> options = {
        concat("optimizer={type: ", entry.name, ", ", rate,
               !entry.requirements.one_vector ? ", layer_decay: 0.9}" : ", history: 5}"),
        "strategy=zero2-bf16", "scheduler.min_lr=0"};
    const auto run = [&](const char* name, std::string more = "resume=never") {
      std::vector<std::string> all = options;
      all.push_back(std::move(more));
      return small_run(place, name, all);
    };
    train_by(3, run("whole"));
    train_by(3, run("parts"), 6);
    const Config rest = run("parts", "resume=auto");
    train_by(3, rest);
    EXPECT_EQ(weights_of(rest), weights_of(run("whole"))) << entry.name;
  }
}

TEST(TrainingByRanks, AGroupThatFitsNoParameterIsAnErrorAndAWordThatFitsNoneAWarning) {
  const TemporaryFolder place;
  const auto groups = [&](const char* name, const char* match, const char* lies = "device") {
    return small_run(place, name,
                     {"steps=4", concat("sharding.offload_optimizer=", lies),
                      concat("optimizer.groups=[{match: \"", match, "\", weight_decay: 0}]")});
  };
  EXPECT_EQ(error_of([&] { train_by(2, groups("a", "wtee")); }),
            "optimizer.groups: 'wtee' fits no parameter; did you mean 'wte'?");
  EXPECT_THROW(train_by(2, groups("a", "wtee", "file")), Error);
  EXPECT_FALSE(std::filesystem::exists(place / "a")) << "not for pages either";
  Recorder recorder;
  train(groups("b", "bias|wtee"), recorder);
  EXPECT_NE(recorder.messages.find("no parameter's name contains 'wtee'; did you mean 'wte'?"), std::string::npos);
}

// Acceptance check 28, its second half.
TEST(TrainingByRanks, ContinuesACheckpointOfAnotherNumberOfRanksAndAnotherStage) {
  const TemporaryFolder place;
  train_by(4, small_run(place, "run", {"strategy=zero3-fp32", "steps=4", "scheduler.steps=12"}));
  std::filesystem::copy(place / "run", place / "single", std::filesystem::copy_options::recursive);
  const std::vector<std::string> more = {"resume=auto", "steps=4", "scheduler.steps=12"};
  // Nothing is left to train: what is saved again are the weights that were loaded.
  const Config four = small_run(place, "run"), one = small_run(place, "single", more);
  Recorder recorder;
  train(one, recorder);
  EXPECT_EQ(weights_of(one), weights_of(four));
  Recorder further;
  EXPECT_EQ(train(small_run(place, "single", {"resume=auto", "scheduler.steps=12"}), further).step, 12);
  EXPECT_EQ(train_by(3, small_run(place, "run", {"resume=auto", "strategy=zero1-fp32"}))[2]->losses.size(), 8u);
}

TEST(TrainingByRanks, StopsAllAfterTheSameStepWhenOneIsAsked) {
  const TemporaryFolder place;
  const auto recorders = train_by(4, small_run(place, "run", {"strategy=zero2-fp32"}), 5);
  for (const auto& recorder : recorders) EXPECT_EQ(recorder->losses.size(), recorders[0]->losses.size());
  EXPECT_LT(recorders[0]->losses.size(), 12u);
  EXPECT_EQ(recorders[0]->checkpoints.back(), static_cast<std::int64_t>(recorders[0]->losses.size()));
}

TEST(TrainingByRanks, AThreadForCommunicationChangesNoBit) {
  for (const std::string& stage : kStrategies) {
    const TemporaryFolder place;
    std::string weights;
    for (const char* progress : {"sharding.progress=poll", "sharding.progress=thread"}) {
      const Config config = small_run(place, progress, {"steps=5", "strategy=" + stage + "-bf16", progress});
      train_by(3, config);
      if (weights.empty()) weights = weights_of(config);
      EXPECT_EQ(weights_of(config), weights) << stage;
    }
  }
}

TEST(TrainingByRanks, ATraceHasTheComputingAndTheCommunicationOfEveryRank) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"strategy=zero3-fp32", "log.trace=2"});
  train_by(3, config);
  const auto events = nlohmann::json::parse(read_text_file(RunFolder(config.run).trace())).at("traceEvents");
  std::set<std::pair<int, std::string>> found;
  for (const auto& event : events)
    if (event.at("ph") == "X") found.emplace(event.at("pid").get<int>(), event.at("name").get<std::string>());
  for (int rank = 0; rank < 3; ++rank)
    for (const char* name :
         {"forward h.0", "forward h.1", "backward h.0", "backward h.1", "reduce_scatter", "all_gather"})
      EXPECT_TRUE(std::any_of(found.begin(), found.end(),
                              [&](const auto& each) { return each.first == rank && each.second.starts_with(name); }))
          << "rank " << rank << ": " << name;
  EXPECT_NE(read_text_file(RunFolder(config.run).metrics()).find("\"exposed_ms\":"), std::string::npos);
}

TEST(TrainingByRanks, EveryRankHasALog) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"strategy=zero1-fp32"});
  train_by(3, config);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_NE(read_text_file(RunFolder(config.run).log(rank)).find("step 12/12"), std::string::npos);
}

// The messages of all ranks.
std::vector<std::string> failures_of(int n, const std::function<void(Communicator&)>& f) {
  std::vector<std::string> messages(static_cast<std::size_t>(n));
  EXPECT_THROW(run_ranks(n,
                         [&](Communicator& ranks) {
                           try {
                             f(ranks);
                           } catch (const std::exception& error) {
                             messages[static_cast<std::size_t>(ranks.rank())] = error.what();
                             throw;
                           }
                         }),
               std::exception);
  return messages;
}

TEST(TrainingByRanks, DifferentConfigurationsAreToldToAllBeforeTraining) {
  const TemporaryFolder place;
  const auto messages = failures_of(3, [&](Communicator& ranks) {
    Recorder recorder;
    train(small_run(place, "run", {ranks.rank() == 2 ? "clip=0.5" : "clip=1"}), recorder, ranks);
  });
  for (const std::string& message : messages)
    EXPECT_EQ(message, "ranks were given different configurations: rank 0 has clip: 1, rank 2 has clip: 0.5");
  EXPECT_FALSE(std::filesystem::exists(place / "run"));
}

TEST(TrainingByRanks, DataThatOneRankMissesIsToldToAll) {
  const TemporaryFolder place;
  const auto messages = failures_of(3, [&](Communicator& ranks) {
    Recorder recorder;
    const bool misses = ranks.rank() == 1;
    train(small_run(place, "run", {misses ? "data.path=missing.txt" : "seed=1"}), recorder, ranks);
  });
  for (const std::string& message : messages) {
    EXPECT_TRUE(message.starts_with("rank 1: ")) << message;
    EXPECT_NE(message.find("missing.txt"), std::string::npos) << message;
  }
}

TEST(TrainingByRanks, TellsWhatWholeGradientsOfSeveralMicroBatchesCost) {
  const TemporaryFolder place;
  const auto messages_of = [&](const std::string& name, const std::vector<std::string>& overrides) {
    std::string messages;
    run_ranks(2, [&](Communicator& ranks) {
      Recorder recorder;
      train(small_run(place, name, overrides), recorder, ranks);
      if (ranks.rank() == 0) messages = recorder.messages;
    });
    return messages;
  };
  const std::string note = "each rank keeps its whole gradients, ";
  EXPECT_NE(messages_of("a", {"steps=5", "batch.micro=1", "strategy=zero2-fp32"}).find(note), std::string::npos);
  EXPECT_EQ(messages_of("b", {"steps=5", "batch.micro=1", "strategy=zero1-fp32"}).find(note), std::string::npos);
  EXPECT_EQ(messages_of("c", {"steps=5", "batch.micro=1", "strategy=zero2-fp32", "sharding.accumulation=each_backward"})
                .find(note),
            std::string::npos);
}

TEST(TrainingByRanks, MoreRanksThanSequencesIsOneClearLine) {
  const TemporaryFolder place;
  for (const std::string& message : failures_of(7, [&](Communicator& ranks) {
         Recorder recorder;
         train(small_run(place, "run"), recorder, ranks);
       }))
    EXPECT_EQ(message, "a global batch of 6 rows is too small for 7 ranks");
}

// Throws from its third step on.
class Failing : public Recorder {
 public:
  void on_step(const StepReport& report) override {
    if (report.step >= 3) throw std::runtime_error("the printer is on fire");
    Recorder::on_step(report);
  }
};

TEST(TrainingByRanks, SaveWhatWasLearntWhereTheObserverOfOneThrows) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"strategy=zero3-fp32"});
  const auto messages = failures_of(3, [&](Communicator& ranks) {
    Recorder recorder;
    Failing failing;
    train(config, ranks.rank() == 1 ? static_cast<TrainObserver&>(failing) : recorder, ranks);
  });
  EXPECT_EQ(messages[0], "rank 1 cannot go on; its log says why");
  EXPECT_EQ(messages[1], "the printer is on fire");
  const std::vector<std::int64_t> steps = RunFolder(config.run).checkpoint_steps();
  ASSERT_FALSE(steps.empty());
  EXPECT_GE(steps.back(), 3);
  EXPECT_EQ(read_whole(RunFolder(config.run).checkpoint(steps.back())).step, steps.back());
}

TEST(TrainingByRanks, TenSkippedStepsAtTheFloorOfTheLossScaleEndTheRunAndItsCheckpointsStay) {
  for (const std::string& stage : kStrategies) {
    const TemporaryFolder place;
    // So large a scale that every gradient overflows.
    const Config config = small_run(
        place, "run", {"strategy=" + stage + "-fp16", "steps=40", "loss_scale.initial=1e30", "loss_scale.floor=1e30"});
    const auto messages = failures_of(3, [&](Communicator& ranks) {
      Recorder recorder;
      train(config, recorder, ranks);
    });
    for (const std::string& message : messages) {
      EXPECT_TRUE(
          message.starts_with("10 steps in a row had gradients that were not finite, the last at step 10: the "
                              "gradient of "))
          << message;
      EXPECT_NE(message.find("though the loss scale is at its floor"), std::string::npos) << message;
    }
    const TrainState state = read_whole(RunFolder(config.run).checkpoint(10));
    EXPECT_EQ(state.step, 10);
    EXPECT_EQ(state.optimizer.steps, 0);
    // With a scale that fits the run goes on.
    const auto further =
        train_by(3, small_run(place, "run",
                              {"strategy=" + stage + "-fp16", "steps=14", "resume=auto", "loss_scale.initial=1e30",
                               "loss_scale.floor=0", "loss_scale.backoff=1e-14"}));
    EXPECT_EQ(further[0]->losses.size(), 4u);
    EXPECT_EQ(read_whole(RunFolder(config.run).checkpoint(14)).optimizer.steps, 2);
  }
}

// Momentum of matrices is kept without the scale, and is that of the step before where one was skipped.
TEST(TrainingByRanks, ByMuonInFp16SkipsStepsAndGoesOnWithTheSameBitsInEveryStage) {
  const TemporaryFolder place;
  std::string weights;
  for (const std::string& stage : kStrategies) {
    const auto run = [&](const std::string& name, const std::string& more) {
      return small_run(place, stage + name,
                       {concat("strategy=", stage, "-fp16"), "optimizer.type=Muon", "optimizer.lr=1e-3",
                        "loss_scale.initial=1e9", "loss_scale.backoff=0.01", more});
    };
    const auto told = train_by(2, run("-whole", "resume=never"));
    EXPECT_NE(told[0]->messages.find("step 1 was skipped"), std::string::npos) << told[0]->messages;
    EXPECT_LT(told[0]->losses.back(), told[0]->losses.front());
    if (weights.empty()) weights = weights_of(run("-whole", "resume=never"));
    EXPECT_TRUE(weights_of(run("-whole", "resume=never")) == weights) << stage;
    train_by(2, run("-parts", "resume=never"), 5);
    train_by(2, run("-parts", "resume=auto"));
    EXPECT_TRUE(weights_of(run("-parts", "resume=never")) == weights) << stage << ", stopped after 5 steps";
  }
}

TEST(TrainingByRanks, AnOverflowInFp16HalvesTheScaleAndIsNoWarning) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"strategy=zero2-fp16", "steps=30", "loss_scale.initial=1e9"});
  const auto recorders = train_by(2, config);
  EXPECT_EQ(recorders[0]->losses.size(), 30u);
  EXPECT_NE(recorders[0]->messages.find("step 1 was skipped: the gradient of "), std::string::npos);
  EXPECT_NE(recorders[0]->messages.find("; the loss scale is now 5e+08"), std::string::npos) << recorders[0]->messages;
  EXPECT_LT(recorders[0]->losses.back(), recorders[0]->losses.front());
}

TEST(TrainingByRanks, ALossThatIsNotFiniteNamesTheRankAndTheTensorEverywhere) {
  const TemporaryFolder place;
  for (const std::string& stage : kStrategies)
    for (const std::string& message : failures_of(3, [&](Communicator& ranks) {
           Recorder recorder;
           train(small_run(place, stage,
                           {"strategy=" + stage + "-fp32", "optimizer.lr=1e30", "clip=0", "scheduler.warmup=0",
                            "scheduler.min_lr=0"}),
                 recorder, ranks);
         })) {
      EXPECT_NE(message.find("the loss on rank 0 is "), std::string::npos) << message;
      EXPECT_NE(message.find("first bad tensor: "), std::string::npos) << message;
    }
}

// A word of a few bytes behind a model's parameters would hold up every step on a slow network.
TEST(TrainingByRanks, SayTheirWordOfAStepBeforeItsParametersTravel) {
  const TemporaryFolder place;
  for (const char* strategy : {"strategy=zero1-fp32", "strategy=zero2-fp32"}) {
    const Config config = small_run(place, strategy + 9, {strategy, "eval.every=100"});
    std::string order;  // g: of gradients, p: of parameters, w: words, of one rank
    run_ranks(2, [&](Communicator& direct) {
      WatchedCommunicator ranks(direct, [&](std::int64_t, const Collective& asked) {
        if (direct.rank() != 0) return;
        if (asked.kind == CollectiveKind::reduce_scatter) order += 'g';
        else if (asked.kind == CollectiveKind::all_gather) order += asked.dtype() == DType::f32 ? 'p' : 'w';
      });
      Recorder recorder;
      train(config, recorder, ranks);
    });
    std::smatch steps;
    EXPECT_TRUE(std::regex_search(order, steps, std::regex("(g+w+p+){4}"))) << strategy << ": " << order;
  }
}

}  // namespace
}  // namespace keel
