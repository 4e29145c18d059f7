// Callbacks: every event in order on every rank, what they may ask for, what they keep, and what becomes of one that
// throws.

#include "keel/trainer/callback.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/kernels/elementwise.h"
#include "keel/trainer/metrics.h"
#include "tests/error_of.h"
#include "tests/trainer/everywhere.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

const std::vector<std::string> kStages = {"ddp-fp32", "zero1-fp32", "zero2-fp32", "zero3-fp32"};

// What each of n ranks saw, trained with a callback that `make` makes for it.
using MakeCallbacks = std::function<Callbacks(int rank)>;
TrainResult train_with(int n, const Config& config, const MakeCallbacks& make, std::int64_t stop_after = INT64_MAX) {
  TrainResult result;
  run_ranks(n, [&](Communicator& ranks) {
    Recorder recorder(ranks.rank() == n - 1 ? stop_after : INT64_MAX);
    const TrainResult mine = train(config, recorder, ranks, make(ranks.rank()));
    if (ranks.rank() == 0) result = mine;
  });
  return result;
}

// The events of each rank, a line each.
class Events {
 public:
  explicit Events(int n) : by_rank_(static_cast<std::size_t>(n)) {}
  Callbacks make(int rank, const Everywhere::OnEvent& then = {}) {
    return {std::make_shared<Everywhere>([this, rank, then](const std::string& event, LoopView& view) {
      EXPECT_EQ(view.rank(), rank);
      std::string& seen = by_rank_[static_cast<std::size_t>(rank)];
      seen += concat(event, ' ', view.state().step);
      if (view.state().micro_batch >= 0) seen += concat('.', view.state().micro_batch);
      seen += '\n';
      if (then) then(event, view);
    })};
  }
  const std::string& of(int rank) const { return by_rank_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::string> by_rank_;
};

std::string events_of_step(int step, int micro_batches) {
  std::string text = concat("step_begin ", step, '\n');
  for (int i = 0; i < micro_batches; ++i)
    text += concat("before_backward ", step, '.', i, "\nafter_backward ", step, '.', i, '\n');
  return text + concat("before_optimizer_step ", step, "\nafter_optimizer_step ", step, "\nstep_end ", step, '\n');
}

TEST(Callbacks, GetEveryEventInOrderOnEveryRank) {
  for (const int n : {1, 2, 3})
    for (const std::string& stage : kStages) {
      const TemporaryFolder place;
      const auto config = [&](const char* more) {
        return small_run(place, "run",
                         {"steps=5", "batch.micro=1", "eval.every=2", "checkpoint.every=3", "strategy=" + stage, more});
      };
      const auto train_some = [&](const char* more, std::int64_t stop_after) {
        Events events(n);
        train_with(
            n, config(more), [&](int rank) { return events.make(rank); }, stop_after);
        for (int rank = 1; rank < n; ++rank) EXPECT_EQ(events.of(rank), events.of(0)) << stage;
        return events.of(0);
      };
      const auto steps = [&](int from, int to) {
        std::string text;
        for (int step = from; step <= to; ++step) {
          text += events_of_step(step, 6 / n);
          if (step % 2 == 0) text += concat("evaluation_begin ", step, "\nevaluation_end ", step, '\n');
          if (step == 3) text += "checkpoint_saved 3\n";
        }
        return text;
      };
      // Several ranks hear of a signal a step later.
      const int stop = n == 1 ? 4 : 3;
      std::string until = steps(1, 4);
      until.erase(until.find("evaluation_begin 4"));
      EXPECT_EQ(train_some("resume=never", stop),
                concat("fit_begin 0\n", until, "interrupt 4\ncheckpoint_saved 4\nfit_end 4\n"))
          << stage << " by " << n;
      EXPECT_EQ(train_some("resume=auto", INT64_MAX),
                concat("fit_begin 4\nresumed 4\nevaluation_begin 4\nevaluation_end 4\ncheckpoint_saved 4\n",
                       steps(5, 5), "evaluation_begin 5\nevaluation_end 5\ncheckpoint_saved 5\nfit_end 5\n"))
          << stage << " by " << n;
    }
}

// Rank 1 of several alone.
TEST(Callbacks, ThatThrowInAnyEventEndTheRunInOrderAfterSaving) {
  const std::vector<std::string> kEvents = {"fit_begin",
                                            "step_begin",
                                            "before_backward",
                                            "after_backward",
                                            "before_optimizer_step",
                                            "after_optimizer_step",
                                            "step_end",
                                            "evaluation_begin",
                                            "evaluation_end",
                                            "checkpoint_saved",
                                            "fit_end"};
  for (const int n : {1, 3})
    for (const std::string& where : kEvents) {
      const TemporaryFolder place;
      const Config config = small_run(place, "run", {"steps=9", "strategy=zero2-fp32", "checkpoint.every=4"});
      Events events(n);
      const std::string told = error_of([&] {
        train_with(n, config, [&](int rank) {
          return events.make(rank, [&, rank](const std::string& event, LoopView& view) {
            const bool is_due = view.state().step == 4 || where.starts_with("fit_");
            if (event == where && is_due && rank == (n == 1 ? 0 : 1)) throw std::runtime_error("out of milk");
          });
        });
      });
      EXPECT_NE(told.find(concat("callback everywhere failed in ", where, ": out of milk")), std::string::npos)
          << where << ": " << told;
      EXPECT_EQ(told.find("rank 1: ") != std::string::npos, n > 1) << told;
      const std::vector<std::int64_t> saved = RunFolder(config.run).checkpoint_steps();
      if (where == "fit_begin") {
        EXPECT_TRUE(saved.empty());
        continue;
      }
      ASSERT_FALSE(saved.empty()) << where;
      EXPECT_EQ(read_whole(RunFolder(config.run).checkpoint(saved.back())).step, saved.back());
      EXPECT_EQ(saved.back(), where == "fit_end" ? 9 : where == "checkpoint_saved" && n == 1 ? 5 : saved.back());
      EXPECT_GE(saved.back(), 4) << where;
      for (int rank = 0; rank < n; ++rank) {
        EXPECT_NE(events.of(rank).find("exception "), std::string::npos) << where << " on " << rank;
        EXPECT_TRUE(events.of(rank).ends_with(concat("fit_end ", saved.back(), '\n'))) << events.of(rank);
      }
    }
}

TEST(Callbacks, ThatAllThrowAnAgreedErrorEndAtOnceAfterSaving) {
  for (const int n : {1, 2}) {
    const TemporaryFolder place;
    const Config config = small_run(place, "run", {"steps=9"});
    Events events(n);
    EXPECT_EQ(error_of([&] {
                train_with(n, config, [&](int rank) {
                  return events.make(rank, [](const std::string& event, LoopView& view) {
                    if (event == "step_end" && view.state().step == 3) throw AgreedError("enough");
                  });
                });
              }),
              "enough");
    EXPECT_EQ(RunFolder(config.run).checkpoint_steps(), (std::vector<std::int64_t>{3}));
  }
}

// The rank that asks is the last one; what it asks for happens on all, at one step, whatever their number.
TEST(Callbacks, AreGivenWhatAnyRankAsksForAtTheSameStep) {
  for (const int n : {1, 2, 3}) {
    const TemporaryFolder place;
    const Config config = small_run(place, "run", {"steps=12", "eval.every=100", "checkpoint.every=100"});
    Events events(n);
    const TrainResult result = train_with(n, config, [&](int rank) {
      return events.make(rank, [n, rank](const std::string& event, LoopView& view) {
        if (rank + 1 < n) return;
        if (event == "step_end" && view.state().step == 2) view.ask_evaluation();
        if (event == "before_backward" && view.state().step == 4) view.ask_checkpoint();
        if (event == "evaluation_end" && view.state().step == 3) view.ask_checkpoint();
        if (event == "step_end" && view.state().step == 6) view.ask_stop("it is good enough");
      });
    });
    EXPECT_EQ(result.end, TrainEnd::callback);
    EXPECT_EQ(result.step, 7);
    EXPECT_EQ(result.evaluation->step, 7);
    for (int rank = 0; rank < n; ++rank) {
      EXPECT_NE(events.of(rank).find("evaluation_end 3\ncheckpoint_saved 3\n"), std::string::npos) << events.of(rank);
      EXPECT_NE(events.of(rank).find("checkpoint_saved 5\n"), std::string::npos) << events.of(rank);
    }
  }
}

TEST(Callbacks, EndARunAtTheEvaluationThatTheyJudge) {
  for (const int n : {1, 2}) {
    const TemporaryFolder place;
    std::string messages;
    run_ranks(n, [&](Communicator& ranks) {
      Recorder recorder;
      const TrainResult result = train(small_run(place, "run"), recorder, ranks,
                                       {std::make_shared<Everywhere>([](const std::string& event, LoopView& view) {
                                         if (event == "evaluation_end") {
                                           EXPECT_GT(view.state().metrics.at("validation_loss"), 0);
                                           view.ask_stop("it is good enough");
                                         }
                                       })});
      EXPECT_EQ(result.step, 4);
      EXPECT_EQ(recorder.checkpoints, (std::vector<std::int64_t>{4}));
      if (ranks.rank() == 0) messages = recorder.messages;
    });
    EXPECT_NE(messages.find("ends after step 4: it is good enough\n"), std::string::npos) << messages;
  }
}

std::vector<double> rates_of(const Config& config) {
  std::vector<double> rates;
  for (const Json& record : read_metrics(RunFolder(config.run).metrics()))
    if (record.contains("lr")) rates.push_back(record.at("lr").number());
  return rates;
}

TEST(Callbacks, ScaleTheLearningRatesOfLaterSteps) {
  for (const int n : {1, 2}) {
    const TemporaryFolder place;
    const auto config = [&](const char* name, const char* more = "seed=1") {
      return small_run(place, name, {"scheduler={type: constant}", "optimizer.lr=1e-2", more});
    };
    const MakeCallbacks halve = [](int) -> Callbacks {
      return {std::make_shared<Everywhere>([](const std::string& event, LoopView& view) {
        if (event == "step_end" && view.state().step == 3) view.set_rate_factor(0.5);
      })};
    };
    train_with(n, config("whole"), halve);
    const std::vector<double> rates = rates_of(config("whole"));
    ASSERT_EQ(rates.size(), 12u);
    for (std::size_t i = 0; i < rates.size(); ++i) EXPECT_EQ(rates[i], i < 4 ? 1e-2 : 5e-3) << i;
    train_with(n, config("parts"), halve, 6);
    train_with(n, config("parts", "resume=auto"), halve);
    EXPECT_TRUE(weights_of(config("parts")) == weights_of(config("whole")));
    if (n == 1) continue;
    EXPECT_NE(error_of([&] {
                train_with(n, config("differ"), [](int rank) -> Callbacks {
                  return {std::make_shared<Everywhere>([rank](const std::string& event, LoopView& view) {
                    if (event == "step_end") view.set_rate_factor(rank + 1);
                  })};
                });
              }).find("callbacks of rank 1 ask for 2 times the learning rate, and those of rank 0 for 1 times"),
              std::string::npos);
  }
}

// Counts steps, and adds up the weights after each.
class Adding : public Callback {
 public:
  std::string_view name() const override { return "adding"; }
  void fit_begin(LoopView& view) override {
    sums_ = view.engine().weights();
    for (TensorPart& part : sums_)
      if (part.values.defined()) part.values = zeros(view.context(), part.values.shape());
  }
  void step_end(LoopView& view) override {
    ++steps_;
    view.engine().wait_until_released();
    const TensorParts weights = view.engine().weights();
    for (std::size_t i = 0; i < weights.size(); ++i)
      if (weights[i].numel() > 0) kernels::accumulate(sums_[i].values, weights[i].values);
    view.log("steps_counted", static_cast<double>(steps_));
  }
  CallbackState save() override { return {{{"steps", steps_}}, sums_}; }
  void load(const Json& numbers) override { steps_ = numbers.at("steps").integer(); }

  std::int64_t steps() const { return steps_; }
  std::uint64_t fingerprint() const { return keel::fingerprint(sums_); }

 private:
  std::int64_t steps_ = 0;
  TensorParts sums_;
};

TEST(Callbacks, GoOnFromWhatACheckpointKeeps) {
  struct Stop {
    int before, after;
    const char *stage, *later;
  };
  for (const Stop& stop : {Stop{1, 1, "zero2-fp32", "zero2-fp32"}, Stop{3, 3, "zero3-fp32", "zero1-fp32"},
                           Stop{3, 3, "ddp-fp32", "zero3-fp32"}})
    for (const char* async : {"checkpoint.async=false", "checkpoint.async=true"}) {
      const TemporaryFolder place;
      const auto sums_after = [&](int n, const Config& config, std::int64_t stop_after) {
        std::uint64_t sum = 0;
        std::mutex mutex;
        run_ranks(n, [&](Communicator& ranks) {
          const auto adding = std::make_shared<Adding>();
          Recorder recorder(ranks.rank() == n - 1 ? stop_after : INT64_MAX);
          const TrainResult result = train(config, recorder, ranks, {adding});
          const std::lock_guard lock(mutex);
          if (stage_number(config.strategy.stage) > 0 || ranks.rank() == 0) sum += adding->fingerprint();
          EXPECT_EQ(adding->steps(), stop_after == INT64_MAX ? 12 : result.step);
        });
        return sum;
      };
      const auto config = [&](const char* name, const char* stage, const char* resume) {
        return small_run(place, name, {concat("strategy=", stage), resume, async});
      };
      const std::uint64_t whole = sums_after(stop.before, config("whole", stop.stage, "resume=never"), INT64_MAX);
      sums_after(stop.before, config("parts", stop.stage, "resume=never"), 6);
      EXPECT_EQ(sums_after(stop.after, config("parts", stop.later, "resume=auto"), INT64_MAX), whole) << stop.stage;
      std::int64_t counted = 0;
      for (const Json& record : read_metrics(RunFolder(config("parts", stop.stage, "resume=never").run).metrics()))
        if (record.contains("steps_counted")) ++counted;
      EXPECT_GE(counted, 10);
      // A run without it leaves it out, and one more begins anew.
      Recorder recorder;
      train(config("parts", stop.later, "resume=auto"), recorder);
      EXPECT_NE(recorder.messages.find("of the callback adding is left out: the run has none"), std::string::npos);
      Recorder again;
      train(config("parts", stop.later, "resume=auto"), again, Callbacks{std::make_shared<Adding>()});
    }
}

TEST(Callbacks, ThatDoNothingChangeNoBit) {
  const TemporaryFolder place;
  train_by(2, small_run(place, "without", {"strategy=zero3-bf16"}));
  train_with(2, small_run(place, "with", {"strategy=zero3-bf16"}),
             [](int) -> Callbacks { return {std::make_shared<Everywhere>([](const std::string&, LoopView&) {})}; });
  EXPECT_TRUE(weights_of(small_run(place, "with")) == weights_of(small_run(place, "without")));
}

TEST(Callbacks, AreRefusedWhereTheyMakeNoSense) {
  const TemporaryFolder place;
  const auto told = [&](const Callbacks& callbacks) {
    TrainObserver silent;
    return error_of([&] {
      train(small_run(place, "run", {"steps=2", "scheduler.warmup=1", "resume=auto"}), silent, callbacks);
    });
  };
  const auto named = [](
                         std::string name, Everywhere::OnEvent f = [](const std::string&, LoopView&) {}) {
    return std::make_shared<Everywhere>(std::move(f), std::move(name));
  };
  EXPECT_EQ(told({named("a-b")}), "'a-b' is no name of a callback: letters, digits and _ are possible");
  EXPECT_EQ(told({named("a"), named("a")}), "two callbacks have the name 'a'");
  EXPECT_FALSE(std::filesystem::exists(place / "run"));
  EXPECT_NE(told({named("a",
                        [](const std::string& event, LoopView& view) {
                          if (event == "step_end") view.log("loss", 1);
                        })})
                .find("'loss' is a name of keel's own records"),
            std::string::npos);
  class Endless : public Callback {
    std::string_view name() const override { return "endless"; }
    CallbackState save() override { return {{{"best", std::numeric_limits<double>::infinity()}}}; }
  };
  EXPECT_EQ(told({std::make_shared<Endless>()}), "callback endless keeps a number that is not finite");
}

}  // namespace
}  // namespace keel
