// Runs of which a group of ranks dies: with outer.on_failure=drop the others go on.

#include "tests/trainer/lost_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "keel/trainer/lost_groups.h"

namespace keel {
namespace {

using namespace testing;

TEST(LostGroups, AreToldByTheirRanksAndHowManyGoOn) {
  EXPECT_EQ(message_of(LostGroup{.number = 1, .first = 2, .last = 3, .left = 2}, 7),
            "step 7: group 1 (ranks 2 to 3) is gone and was dropped; 2 groups go on");
  EXPECT_EQ(message_of(LostGroup{.number = 0, .first = 0, .last = 0, .left = 1}, 8),
            "step 8: group 0 (rank 0) is gone and was dropped; 1 group goes on");
}

TEST(LostGroups, AreDroppedWhereverTheyDie) {
  for (const int victim : {2, 0}) {
    const TemporaryFolder place;
    const std::vector<std::string> settings = dropping("{type: diloco, every: 3}", 1);
    const std::int64_t asked = train_until_death(3, small_run(place, "whole", settings), {victim, -1})
                                   .ranks[static_cast<std::size_t>(victim)]
                                   ->asked;
    ASSERT_GT(asked, 40);
    for (int i = 0; i < 5; ++i) {
      const std::int64_t at = i * (asked - 6) / 4;
      const Config config = small_run(place, concat("run-", i), settings);
      const Ended ended = train_until_death(3, config, {victim, at});
      const std::string what = concat("rank ", victim, " before collective ", at, " of ", asked);
      std::set<int> left = {0, 1, 2};
      left.erase(victim);
      EXPECT_EQ(ended.left(), left) << what << ended.errors[0] << ended.errors[1] << ended.errors[2];
      if (ended.left() == left) expect_whole_run(config, ended, victim, what);
    }
  }
}

void cut_last_line(const std::string& path) {
  std::string text = read_text_file(path);
  const std::size_t end = text.rfind('\n', text.size() - 2);
  write_text_file(path, text.substr(0, end == std::string::npos ? 0 : end + 1));
}

std::map<std::int64_t, double> losses_of(const Config& config, const std::string& name) {
  std::map<std::int64_t, double> losses;
  for (const Json& record : read_metrics(RunFolder(config.run).metrics()))
    if (record.contains(name)) losses[record.at("step").integer()] = record.at(name).number();
  return losses;
}

// As one does that has passed an attempt, and not written the record of it.
TEST(LostGroups, LeaveNoRecordOut) {
  const TemporaryFolder place;
  const std::vector<std::string> settings = dropping("{type: diloco, every: 3}", 1);
  for (const int at : {3, 8, 13, 22, 31}) {
    SCOPED_TRACE(at);
    const Config plain = small_run(place, concat("plain-", at), settings);
    const Config cut = small_run(place, concat("cut-", at), settings);
    ASSERT_EQ(train_until_death(3, plain, {0, at}).left(), (std::set<int>{1, 2}));
    ASSERT_EQ(train_until_death(3, cut, {0, at}, [&] { cut_last_line(RunFolder(cut.run).metrics()); }).left(),
              (std::set<int>{1, 2}));
    for (const char* name : {"loss", "validation_loss", "dropped_group"})
      EXPECT_EQ(losses_of(cut, name), losses_of(plain, name)) << name;
    EXPECT_EQ(read_metrics(RunFolder(cut.run).metrics()).size(), 12U + 3 + 1 + 1) << "each once";
  }
}

TEST(LostGroups, AreFollowedByAFirstRankThatSaysSoOnce) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", dropping("{type: diloco, every: 3}", 1, {"tracker=jsonl"}));
  const Ended ended = train_until_death(3, config, {0, 20});
  ASSERT_EQ(ended.left(), (std::set<int>{1, 2})) << ended.errors[0];
  const std::string line = "rank 1 takes over: ";
  EXPECT_EQ(ended.ranks[0]->times_first, 0);
  EXPECT_EQ(ended.ranks[1]->times_first, 1);
  EXPECT_EQ(ended.ranks[2]->times_first, 0);
  const std::size_t told = ended.ranks[1]->messages.find(line);
  ASSERT_NE(told, std::string::npos) << ended.ranks[1]->messages;
  EXPECT_EQ(ended.ranks[1]->messages.find(line, told + 1), std::string::npos);
  EXPECT_EQ(ended.ranks[2]->messages.find("takes over"), std::string::npos);
  const std::string tracked = read_text_file(config.run + "/tracker.jsonl");
  for (int step = 1; step <= 12; ++step)
    EXPECT_NE(tracked.find(concat("\"step\":", step, ",")), std::string::npos) << tracked;
  EXPECT_NE(tracked.find("finished"), std::string::npos);
}

// Those that are left number themselves anew, and what they record keeps the numbers with which they began.
TEST(LostGroups, LeaveRecordingsThatSayWhoTheOthersWere) {
  const TemporaryFolder place;
  const Config config =
      small_run(place, "run", dropping("{type: diloco, every: 3}", 1, {"profile={start: 12, steps: 1}"}));
  const Ended ended = train_until_death(3, config, {0, 5});
  ASSERT_EQ(ended.left(), (std::set<int>{1, 2})) << ended.errors[0];
  const RunFolder folder(config.run);
  EXPECT_FALSE(std::filesystem::exists(folder.trace_of(0)));
  for (const int rank : {1, 2}) {
    const Json memory = Json::parse(read_text_file(folder.memory_of(rank)));
    EXPECT_EQ(memory.at("began").integer(), 3);
    ASSERT_EQ(memory.at("ranks").items().size(), 1U);
    EXPECT_EQ(memory.at("ranks").items()[0].at("rank").integer(), rank);
    const Json trace = Json::parse(read_text_file(folder.trace_of(rank)));
    for (const Json& event : trace.at("traceEvents").items()) EXPECT_EQ(event.at("pid").integer(), rank);
  }
}

TEST(LostGroups, AreDroppedAsAWhole) {
  for (const char* outer : {"{type: streaming_diloco, every: 4, fragments: 2, delay: 2}",
                            "{type: sparse_loco, every: 3, chunk: 64, keep: 4}", "{type: demo, chunk: 16, keep: 2}"}) {
    const TemporaryFolder place;
    const Config config = small_run(place, "run", dropping(outer, 2, {"strategy=zero3-fp32"}));
    const Ended ended = train_until_death(4, config, {3, 30});
    EXPECT_EQ(ended.left(), (std::set<int>{0, 1})) << outer << ": " << ended.errors[0];
    if (ended.left().contains(0)) expect_whole_run(config, ended, 1, outer);
  }
}

TEST(LostGroups, EndAllWithoutTheirDropping) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"outer={type: diloco, every: 3}", "sharding.group=1"});
  const Ended ended = train_until_death(3, config, {2, 20});
  EXPECT_TRUE(ended.left().empty());
  for (const std::size_t r : {0, 1}) EXPECT_NE(ended.errors[r].find("this rank dies"), std::string::npos);
}

// With a learning rate that moves nothing, groups that begin with the current weights keep them.
TEST(LostGroups, ComeBackWithTheCurrentWeights) {
  const TemporaryFolder place;
  const std::vector<std::string> settings = dropping("{type: local_sgd, every: 3}", 1);
  const Config config = small_run(place, "run", settings);
  ASSERT_EQ(train_until_death(3, config, {0, 20}).left(), (std::set<int>{1, 2}));
  const std::string weights = weights_of(config);
  const Config longer = small_run(
      place, "run",
      dropping("{type: local_sgd, every: 3}", 1,
               {"resume=auto", "steps=18", "optimizer.lr=1e-30", "scheduler.min_lr=0", "optimizer.weight_decay=0"}));
  const auto told = train_by(3, longer);
  EXPECT_NE(told[0]->messages.find("the checkpoint is of 2 groups of ranks, and there are 3"), std::string::npos)
      << told[0]->messages;
  EXPECT_EQ(read_whole(RunFolder(config.run).checkpoint(18)).step, 18);
  EXPECT_TRUE(weights_of(longer) == weights);
}

TEST(LostGroups, AreWatchedWhereSeveralOfThemHaveAllRanksAndTheRunDropsThem) {
  const TemporaryFolder place;
  const auto are_watched = [&](int n, const std::vector<std::string>& settings) {
    const Config config = small_run(place, "run", settings);
    std::vector<char> watched(static_cast<std::size_t>(n));
    run_ranks(n, [&](Communicator& ranks) {
      const auto groups = groups_that_may_be_lost(config, ranks);
      watched[static_cast<std::size_t>(ranks.rank())] = groups ? 'y' : 'n';
    });
    EXPECT_EQ(std::ranges::count(watched, watched.front()), n);
    return watched.front() == 'y';
  };
  for (int n = 1; n <= 6; ++n)
    for (int group = 0; group <= 3; ++group) {
      const int ranks = std::max(group, 1);
      EXPECT_EQ(are_watched(n, dropping("{type: diloco, every: 3}", group)), n > ranks && n % ranks == 0)
          << n << " ranks in groups of " << group;
    }
  EXPECT_FALSE(are_watched(2, {"outer={type: diloco, every: 3}"})) << "all end together unless told otherwise";
}

}  // namespace
}  // namespace keel
