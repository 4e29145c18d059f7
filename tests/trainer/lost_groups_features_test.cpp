// What runs do beside training when a group of ranks dies: the others have the bits of a run that does not, and go on
// from its checkpoints.

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "keel/dist/checkpoint/memory_folder.h"
#include "tests/trainer/lost_groups.h"

namespace keel {
namespace {

using namespace testing;
namespace fs = std::filesystem;

constexpr const char* kOuter = "{type: diloco, every: 3}";

// The hosts' memory, for a test.
class MemoryOfLost {
 public:
  explicit MemoryOfLost(const TemporaryFolder& place) : root_(place / "shm") {
    fs::create_directory(root_);
    ::setenv(MemoryFolder::kVariable, root_.c_str(), 1);
  }
  ~MemoryOfLost() { ::unsetenv(MemoryFolder::kVariable); }
  MemoryOfLost(const MemoryOfLost&) = delete;
  MemoryOfLost& operator=(const MemoryOfLost&) = delete;
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

// Two groups of two ranks.
Config of_pairs(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more) {
  more.insert(more.begin(), "strategy=zero3-fp32");
  return small_run(place, run, dropping(kOuter, 2, std::move(more)));
}

// A rank dies once it has told step 6, which ends with an outer one; what is left then goes on to step 18.
void expect_bits_of_a_run_without(const std::vector<std::string>& feature) {
  for (const int victim : {3, 0}) {
    SCOPED_TRACE(victim);
    const TemporaryFolder place;
    const MemoryOfLost memory(place);
    std::string weights, longer_weights;
    for (const std::string run : {"plain", "with"}) {
      std::vector<std::string> settings;
      if (run == "with") settings = feature;
      const Config config = of_pairs(place, run, settings);
      const Ended ended = train_until_death(4, config, {victim, 0, 6});
      ASSERT_EQ(ended.left(), victim == 0 ? (std::set<int>{2, 3}) : (std::set<int>{0, 1}));
      expect_whole_run(config, ended, victim / 2, run);
      EXPECT_TRUE(fs::is_empty(memory.root())) << "copies in memory are gone with the run that made them";
      const std::string found = weights_of(config);
      settings.insert(settings.end(), {"steps=18", "resume=auto"});
      train_by(4, of_pairs(place, run, settings));
      if (run == "with") {
        EXPECT_TRUE(found == weights);
        EXPECT_TRUE(weights_of(config) == longer_weights);
      }
      weights = found;
      longer_weights = weights_of(config);
    }
  }
}

// Wherever one dies, those that are left come to the end.
void expect_to_go_on_wherever_one_dies(int group, std::vector<std::string> settings) {
  settings = dropping(kOuter, group, std::move(settings));
  for (const int victim : {2 * group, 0}) {
    const TemporaryFolder place;
    const MemoryOfLost memory(place);
    const std::int64_t asked = train_until_death(3 * group, small_run(place, "whole", settings), {victim, -1})
                                   .ranks[static_cast<std::size_t>(victim)]
                                   ->asked;
    constexpr std::int64_t kTries = 6;
    for (std::int64_t i = 0; i < kTries; ++i) {
      const std::int64_t at = i * (asked - 6) / (kTries - 1);
      SCOPED_TRACE(concat("rank ", victim, " before collective ", at, " of ", asked));
      const Config config = small_run(place, concat("run-", i), settings);
      const Ended ended = train_until_death(3 * group, config, {victim, at});
      EXPECT_EQ(ended.left().size(), static_cast<std::size_t>(2 * group));
      for (const std::string& error : ended.errors)
        if (ended.left().empty()) ADD_FAILURE() << error;
      if (!ended.left().empty()) expect_whole_run(config, ended, victim / group, "");
    }
  }
}

TEST(LostGroupsBeside, CheckpointsThatAreWrittenMeanwhile) {
  expect_bits_of_a_run_without({"checkpoint.async=true"});
  expect_to_go_on_wherever_one_dies(1, {"checkpoint.async=true", "checkpoint.every=2"});
}

// It cannot be complete by then: after step 6 the first rank begins to join what the others tell that they have
// written.
TEST(LostGroupsBeside, ACheckpointThatTheyWereWritingIsMadeAgain) {
  for (const int victim : {3, 0}) {
    const TemporaryFolder place;
    const Config config = of_pairs(place, "run", {"checkpoint.async=true"});
    const Ended ended = train_until_death(4, config, {victim, 0, 6});
    ASSERT_EQ(ended.left(), victim == 0 ? (std::set<int>{2, 3}) : (std::set<int>{0, 1}));
    for (const int rank : ended.left()) {
      const DyingRank& told = *ended.ranks[static_cast<std::size_t>(rank)];
      EXPECT_NE(told.messages.find("no checkpoint of step 5: ranks were lost"), std::string::npos) << told.messages;
      EXPECT_EQ(told.checkpoints, (std::vector<std::int64_t>{7, 10, 12}));
    }
    for (const auto& entry : fs::directory_iterator(config.run + "/checkpoints"))
      EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
  }
}

TEST(LostGroupsBeside, CopiesInMemory) {
  expect_bits_of_a_run_without({"checkpoint.memory_every=2"});
  expect_to_go_on_wherever_one_dies(1, {"checkpoint.memory_every=1", "checkpoint.every=100"});
}

// One that was made by those that are left has all that a checkpoint of the same step has.
TEST(LostGroupsBeside, CopiesInMemoryByThoseThatAreLeftAreGoneOnFrom) {
  const TemporaryFolder place;
  const MemoryOfLost memory(place);
  const Config config = of_pairs(place, "run", {"checkpoint.memory_every=4", "checkpoint.every=100", "resume=auto"});
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    train_until_death(4, config, {.victim = 0, .step = 6, .of_all = 10});
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_TRUE(RunFolder(config.run).checkpoint_steps().empty());
  const std::string said = train_by(4, config)[0]->messages;
  EXPECT_NE(said.find("goes on after step 8 from "), std::string::npos) << said;
  EXPECT_NE(said.find("which was in the memory of "), std::string::npos) << said;
  const Config other = of_pairs(place, "other", {"checkpoint.every=8", "checkpoint.keep=9", "resume=auto"});
  ASSERT_EQ(train_until_death(4, other, {.victim = 0, .step = 6}).left(), (std::set<int>{2, 3}));
  fs::remove_all(RunFolder(other.run).checkpoint(12));
  train_by(4, other);
  EXPECT_TRUE(weights_of(config) == weights_of(other));
  EXPECT_TRUE(fs::is_empty(memory.root()));
}

TEST(LostGroupsBeside, SizesThatAreTried) { expect_bits_of_a_run_without({"sharding.bucket=auto"}); }

// Each group chooses for itself, so the others' times are whole whenever one is lost.
TEST(LostGroupsBeside, SizesThatAreTriedAreChosenByThoseThatAreLeft) {
  for (const int victim : {3, 0}) {
    const TemporaryFolder place;
    const Config config = of_pairs(place, "run", {"sharding.bucket=auto", "steps=60", "eval.every=0"});
    const Ended ended = train_until_death(4, config, {victim, 0, 6});
    ASSERT_EQ(ended.left(), victim == 0 ? (std::set<int>{2, 3}) : (std::set<int>{0, 1}));
    expect_whole_run(config, ended, victim / 2, "tuned");
    EXPECT_EQ(steps_with(config, "tuned/algorithm").size(), 1U);
    EXPECT_GT(steps_with(config, "tuned/algorithm").front(), 6);
    const std::string& told = ended.ranks[static_cast<std::size_t>(*ended.left().begin())]->messages;
    EXPECT_NE(told.find("sharding.bucket=auto has chosen"), std::string::npos) << told;
  }
}

TEST(LostGroupsBeside, AThreadForCommunication) {
  expect_bits_of_a_run_without({"sharding.progress=thread"});
  expect_to_go_on_wherever_one_dies(1, {"sharding.progress=thread"});
}

TEST(LostGroupsBeside, AllOfIt) {
  expect_bits_of_a_run_without(
      {"checkpoint.async=true", "checkpoint.memory_every=2", "sharding.bucket=auto", "sharding.progress=thread"});
}

}  // namespace
}  // namespace keel
