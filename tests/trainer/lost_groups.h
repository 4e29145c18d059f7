#pragma once
// Runs of which a group of ranks dies.

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "keel/dist/comm/decorators.h"
#include "keel/trainer/metrics.h"
#include "tests/trainer/run_support.h"

namespace keel::testing {

inline std::vector<std::string> dropping(const std::string& outer, int group, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"outer=" + outer, "outer.on_failure=drop", concat("sharding.group=", group)});
  return more;
}

// Counts the collectives that a rank asks for once it may die.
class DyingRank : public Recorder {
 public:
  explicit DyingRank(std::int64_t kills_after = -1) : kills_after_(kills_after) {}
  void on_step(const StepReport& report) override {
    if (report.step == kills_after_) ::raise(SIGKILL);
    Recorder::on_step(report);
  }
  void on_first() override { ++times_first; }
  std::int64_t last_step() const { return static_cast<std::int64_t>(losses.size()); }
  std::int64_t asked = 0;
  int times_first = 0;

 private:
  std::int64_t kills_after_;
};

struct Ended {
  std::vector<std::unique_ptr<DyingRank>> ranks;
  std::vector<std::string> errors;  // by rank; empty: it came to its end
  std::set<int> left() const {
    std::set<int> ranks_left;
    for (std::size_t r = 0; r < errors.size(); ++r)
      if (errors[r].empty()) ranks_left.insert(static_cast<int>(r));
    return ranks_left;
  }
};

// When a rank dies: before a collective of this number that it asks for once it has told a step of this session.
struct Death {
  int victim = 0;
  std::int64_t collective = 0;  // -1: it does not die
  std::int64_t step = 1;        // counted from the beginning of the session
  std::int64_t of_all = -1;     // the step after which the whole process is killed
};

// The run by n ranks; the victim calls `last` before it dies.
inline Ended train_until_death(int n, const Config& config, const Death& death,
                               const std::function<void()>& last = {}) {
  Ended ended;
  for (int r = 0; r < n; ++r) ended.ranks.push_back(std::make_unique<DyingRank>(death.of_all));
  ended.errors.resize(static_cast<std::size_t>(n));
  const auto train_one = [&](Communicator& direct) {
    const auto r = static_cast<std::size_t>(direct.rank());
    DyingRank& counter = *ended.ranks[r];
    WatchedCommunicator ranks(direct, [&](std::int64_t, const Collective&) {
      if (counter.last_step() < death.step) return;
      if (direct.rank() == death.victim && death.collective >= 0 && counter.asked >= death.collective) {
        if (last && counter.asked == death.collective) last();
        ++counter.asked;
        throw Error("this rank dies");
      }
      ++counter.asked;
    });
    try {
      train(config, counter, ranks);
    } catch (const std::exception& error) {
      ended.errors[r] = error.what();
      throw;
    }
  };
  try {
    run_ranks(n, train_one, {.timeout = std::chrono::seconds(30)});
  } catch (const std::exception&) {}
  return ended;
}

// The records of a kind of value, by step.
inline std::vector<std::int64_t> steps_with(const Config& config, const std::string& name) {
  std::vector<std::int64_t> steps;
  for (const Json& record : read_metrics(RunFolder(config.run).metrics()))
    if (record.contains(name)) steps.push_back(record.at("step").integer());
  return steps;
}

inline void expect_whole_run(const Config& config, const Ended& ended, int lost, const std::string& what) {
  std::vector<std::int64_t> all;
  for (std::int64_t step = 1; step <= config.steps; ++step) all.push_back(step);
  EXPECT_EQ(steps_with(config, "loss"), all) << what;
  EXPECT_EQ(steps_with(config, "dropped_group").size(), 1U) << what;
  EXPECT_EQ(read_whole(RunFolder(config.run).checkpoint(config.steps)).step, config.steps) << what;
  EXPECT_FALSE(weights_of(config).empty()) << what;
  const auto first = static_cast<std::size_t>(*ended.left().begin());
  EXPECT_NE(ended.ranks[first]->messages.find(concat(": group ", lost, " (rank")), std::string::npos)
      << what << ": " << ended.ranks[first]->messages;
}

}  // namespace keel::testing
