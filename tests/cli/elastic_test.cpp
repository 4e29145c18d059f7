// What `keel launch --restarts` decides, for every way in which ranks end.

#include "cli/elastic.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "cli/rank_report.h"

namespace keel::cli {
namespace {

using What = RankReport::What;
using Why = Ending::Why;
using Names = std::vector<std::string>;

const RankReport kKilled = {What::killed, 2, 9, "was killed by signal 9"};
const RankReport kThrew = {What::failed, 1, 1, "failed: the sky is falling"};

RankReport heard(int rank) { return {What::heard, rank, 2, "says: another is gone"}; }
RankReport ended(int rank, int code) {
  return {What::ended, rank, code, "ended with exit code " + std::to_string(code)};
}
RankReport started(int rank) { return {What::started, rank, 0, ""}; }

Ending ending(int code, std::vector<RankReport> reports) {
  return ending_of({.code = code, .reports = std::move(reports)});
}

TEST(SessionEnd, ARankThatIsKilledIsTheCauseWhateverTheOthersSay) {
  for (const std::vector<RankReport>& reports :
       {std::vector{kKilled}, std::vector{heard(0), ended(0, 2), kKilled, heard(1)}, std::vector{kThrew, kKilled}}) {
    const Ending found = ending(2, reports);
    EXPECT_EQ(found.why, Why::died);
    EXPECT_EQ(found.dead, std::vector<int>{2});
    EXPECT_EQ(found.text, "rank 2 was killed by signal 9");
  }
}

TEST(SessionEnd, AllThatWereKilledAreDead) {
  const Ending found = ending(137, {kKilled, {What::killed, 0, 11, "was killed by signal 11"}});
  EXPECT_EQ(found.dead, (std::vector<int>{2, 0}));
  EXPECT_EQ(found.text, "rank 2 was killed by signal 9, rank 0 was killed by signal 11");
}

TEST(SessionEnd, ARankThatFailedIsTheCauseAndItsCodeSaysWhetherARestartCures) {
  const std::vector<RankReport> others = {started(0), heard(0), ended(0, 1), ended(1, 1)};
  const auto with = [&](RankReport failed) {
    std::vector<RankReport> reports = others;
    reports.push_back(std::move(failed));
    return ending(1, reports);
  };
  EXPECT_EQ(with(kThrew), (Ending{Why::died, {1}, "rank 1 failed: the sky is falling"}));
  EXPECT_EQ(with({What::failed, 1, 2, "failed: no such file"}).why, Why::bad_input);
  EXPECT_EQ(with({What::failed, 1, 3, "failed: the loss is not finite"}).why, Why::not_finite);
}

TEST(SessionEnd, ARankThatLeftWithoutAWordIsTheCauseWhereOthersHeardOfIt) {
  const Ending found = ending(2, {heard(0), heard(2), ended(1, 0), ended(0, 2), ended(2, 2)});
  EXPECT_EQ(found, (Ending{Why::died, {1}, "rank 1 ended with exit code 0"}));
}

TEST(SessionEnd, WhereNobodyHeardOfAnEndTheExitCodeSaysWhatItWas) {
  EXPECT_EQ(ending(2, {ended(0, 0), ended(1, 2)}).why, Why::bad_input);
  EXPECT_EQ(ending(3, {ended(0, 3)}).why, Why::not_finite);
  EXPECT_EQ(ending(1, {ended(0, 0), ended(1, 1)}), (Ending{Why::died, {1}, "rank 1 ended with exit code 1"}));
}

TEST(SessionEnd, WhereAllOnlyHeardOfItNoRankIsDead) {
  EXPECT_EQ(ending(2, {heard(3), ended(3, 2), heard(0)}), (Ending{Why::died, {}, "rank 3 says: another is gone"}));
}

TEST(SessionEnd, ALauncherThatDiesIsCuredByARestartWhereRanksHadStarted) {
  EXPECT_EQ(ending(137, {started(0)}).why, Why::died);
  EXPECT_EQ(ending(1, {}).why, Why::no_start);
}

TEST(SessionEnd, SignalsStopARunAndAreNoFailure) {
  for (const int number : {SIGINT, SIGTERM}) {
    EXPECT_EQ(ending_of({.code = 128 + number, .user_signal = number}).why, Why::stopped);
    EXPECT_EQ(ending(128 + number, {started(0), ended(0, 128 + number)}).why, Why::stopped) << "sent to one rank";
  }
  EXPECT_EQ(ending_of({.code = 137, .user_signal = SIGINT, .reports = {kKilled}}).why, Why::stopped);
  EXPECT_EQ(ending_of({.code = 0, .user_signal = SIGINT}).why, Why::done) << "it came too late";
}

TEST(SessionEnd, RanksThatWereAskedToMakeRoomGrowUnlessTheyDiedOrWereDone) {
  EXPECT_EQ(ending_of({.code = 143, .was_to_grow = true}).why, Why::grows);
  EXPECT_EQ(ending_of({.code = 0, .was_to_grow = true}).why, Why::done);
  EXPECT_EQ(ending_of({.code = 137, .was_to_grow = true, .reports = {kKilled}}).why, Why::died);
  EXPECT_EQ(ending_of({.code = 143, .user_signal = SIGTERM, .was_to_grow = true}).why, Why::stopped);
}

class Restart : public ::testing::Test {
 protected:
  NextStart decide_now() const { return decide(ending, standing, rules); }
  std::vector<bool> left_out() const {
    std::vector<bool> each;
    for (const Slot& slot : decide_now().slots) each.push_back(slot.is_left_out);
    return each;
  }

  Ending ending = {Why::died, {2}, "rank 2 was killed"};
  Standing standing = {.slots = slots_of({}, 4), .silent = {}, .used = 0, .step = 50};
  RestartRules rules = {.ranks = 4, .min_ranks = 0, .restarts = 3, .most = 12, .group = 0};
};

TEST_F(Restart, WithoutALeastNumberTakesAsManyRanksAsBefore) {
  const NextStart next = decide_now();
  EXPECT_TRUE(next.starts && next.is_restart);
  EXPECT_EQ(next.ranks, 4);
  EXPECT_EQ(next.slots, standing.slots);
  EXPECT_EQ(next.line, "rank 2 was killed; 4 ranks go on from step 50; 2 of 3 restarts are left");
}

TEST_F(Restart, WithALeastNumberLeavesTheDeadRanksPlaceOut) {
  rules.min_ranks = 2;
  EXPECT_EQ(decide_now().ranks, 3);
  EXPECT_EQ(left_out(), (std::vector<bool>{false, false, true, false}));
  standing.slots = decide_now().slots;
  standing.used = 2;
  EXPECT_EQ(decide_now().ranks, 2) << "rank 2 of three has the last place";
  EXPECT_EQ(left_out(), (std::vector<bool>{false, false, true, true}));
  EXPECT_TRUE(decide_now().line.ends_with("2 ranks go on from step 50; no restart is left")) << decide_now().line;
}

TEST_F(Restart, WithoutACheckpointSaysThatTheRunBeginsAnew) {
  standing.step = std::nullopt;
  EXPECT_EQ(decide_now().line,
            "rank 2 was killed; 4 ranks begin anew, as there is no checkpoint yet; 2 of 3 restarts are left");
}

TEST_F(Restart, SaysThatTheMemoryOfHostsMayHaveALaterStep) {
  standing.may_have_copies = true;
  EXPECT_EQ(decide_now().line,
            "rank 2 was killed; 4 ranks go on from step 50, or from a later one in memory; 2 of 3 restarts are left");
  standing.step = std::nullopt;
  EXPECT_EQ(
      decide_now().line,
      "rank 2 was killed; 4 ranks go on from a step in memory, or anew where there is none: there is no checkpoint "
      "yet; 2 of 3 restarts are left");
}

TEST_F(Restart, EndsWhereTooFewRanksAreLeft) {
  rules.min_ranks = 4;
  const NextStart next = decide_now();
  EXPECT_FALSE(next.starts);
  EXPECT_EQ(next.line, "rank 2 was killed; the run ends, as 3 ranks could go on, and --min-ranks is 4");
}

TEST_F(Restart, EndsWhereRestartsAreUsedUp) {
  standing.used = 3;
  EXPECT_FALSE(decide_now().starts);
  EXPECT_EQ(decide_now().line, "rank 2 was killed; the run ends, as all 3 restarts of --restarts are used up");
  rules.restarts = standing.used = 1;
  EXPECT_EQ(decide_now().line, "rank 2 was killed; the run ends, as the one restart of --restarts is used up");
}

TEST_F(Restart, NeverHappensWhereItWouldNotCure) {
  for (const Why why : {Why::done, Why::stopped, Why::bad_input, Why::not_finite}) {
    ending.why = why;
    EXPECT_EQ(decide_now(), (NextStart{.slots = standing.slots}));
  }
  ending = {Why::no_start, {}, "the launcher ended"};
  EXPECT_FALSE(decide_now().starts);
  EXPECT_EQ(decide_now().line, "the launcher ended; the run ends, as no rank ever started");
}

TEST_F(Restart, LeavesOutAllPlacesOfAHostThatDoesNotAnswer) {
  rules.min_ranks = 1;
  standing.slots = slots_of({{"a", 2}, {"b", 2}}, 4);
  standing.silent = {"b"};
  EXPECT_EQ(left_out(), (std::vector<bool>{false, false, true, true}));
  EXPECT_EQ(decide_now().line,
            "rank 2 was killed; no answer comes from b; 2 ranks go on from step 50; 2 of 3 restarts are left");
  ending = {Why::no_start, {}, "the launcher ended"};
  EXPECT_EQ(decide_now().ranks, 2) << "it ended because of the host";
  rules.min_ranks = 0;
  EXPECT_EQ(decide_now().line,
            "the launcher ended; no answer comes from b; the run ends, as all 4 ranks are needed; --min-ranks lets "
            "fewer go on");
}

TEST_F(Restart, TakesTheNextSmallerNumberOfRanksThatTheBatchAllows) {
  rules.min_ranks = 1;
  rules.group = 2;
  EXPECT_EQ(decide_now().ranks, 2) << "groups of two divide no three ranks";
  rules.group = 4;
  EXPECT_FALSE(decide_now().starts);
  rules.group = 0;
  rules.most = 2;
  EXPECT_EQ(decide_now().ranks, 2) << "a batch of two rows";
}

TEST_F(Restart, SparePlacesTakeTheDeadRanksWork) {
  rules.ranks = rules.min_ranks = 3;
  EXPECT_EQ(decide_now().ranks, 3);
}

TEST_F(Restart, GrowingBringsBackWhatAnswersAndIsNotCounted) {
  ending = {Why::grows, {}, {}};
  standing.slots = slots_of({{"a", 1}, {"b", 2}, {"c", 1}}, 4);
  for (const std::size_t place : {0u, 1u, 2u}) standing.slots[place].is_left_out = true;
  standing.silent = {"a"};
  EXPECT_EQ(left_out(), (std::vector<bool>{true, false, false, false}));
  const NextStart next = decide_now();
  EXPECT_TRUE(next.starts && !next.is_restart);
  EXPECT_EQ(next.line, "what was left out answers again; 3 ranks go on from step 50");
}

TEST_F(Restart, IsAskedForOnlyWhereMoreRanksWouldGoOn) {
  standing.slots = slots_of({{"a", 2}, {"b", 2}}, 4);
  standing.slots[2].is_left_out = standing.slots[3].is_left_out = true;
  EXPECT_TRUE(would_grow(standing.slots, {}, 2, rules));
  EXPECT_FALSE(would_grow(standing.slots, {"b"}, 2, rules));
  rules.most = 2;
  EXPECT_FALSE(would_grow(standing.slots, {}, 2, rules));
}

TEST(Slot, OfARankThatIsGoneIsLeftOutWhileTheOthersGoOn) {
  const Slots slots = {{"a"}, {"a", true}, {"b"}, {"b"}};
  EXPECT_EQ(slots_at_work(slots, {started(0), started(1), heard(1), ended(0, 0)}), slots);
  const Slots killed = {{"a"}, {"a", true}, {"b"}, {"b", true}};
  EXPECT_EQ(slots_at_work(slots, {started(0), kKilled}), killed);
  const Slots failed = {{"a"}, {"a", true}, {"b", true}, {"b"}};
  EXPECT_EQ(slots_at_work(slots, {kThrew, ended(1, 1)}), failed);
  EXPECT_EQ(places_in_use(killed), 2);
  EXPECT_TRUE(any_is_left_out(killed));
}

TEST(SessionEnd, OfWhichNobodyAskedForARestartHasSaidAll) {
  const NextStart next = decide(ending(137, {kKilled}), {.slots = slots_of({}, 3)}, {.ranks = 3});
  EXPECT_FALSE(next.starts);
  EXPECT_EQ(next.line, "");
}

TEST(Slot, ListsOfHostsAndPlacesAreEachOthersInverse) {
  const std::vector<Host> hosts = {{"a", 2}, {"b", 1}};
  Slots slots = slots_of(hosts, 3);
  EXPECT_EQ(slots.size(), 3u);
  EXPECT_EQ(hosts_of(slots), hosts);
  EXPECT_TRUE(hosts_of(slots_of({}, 3)).empty());
  slots[2].is_left_out = true;
  EXPECT_EQ(hosts_of(slots), (std::vector<Host>{{"a", 2}}));
  EXPECT_EQ(host_names(slots, false), (Names{"a", "b"}));
  EXPECT_EQ(host_names(slots, true), (Names{"b"}));
}

TEST(Slot, ThatIsLeftOutTakesItsGpuAlong) {
  Slots slots = slots_of({}, 3);
  slots[1].is_left_out = true;
  EXPECT_EQ(gpus_in_use(slots, {"4", "5", "6"}), "4,6");
  EXPECT_EQ(gpus_in_use(slots, {"4", "5"}), "") << "places share them";
}

TEST(RankReport, ComesOutOfATextAsItWentInHoweverTheTextIsCut) {
  const std::string text = "one\n" + to_line(kKilled) + "two" + to_line(heard(1)) + "\nthree\n" + to_line(started(0));
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    ReportReader reader;
    std::string shown;
    for (std::size_t at = 0; at < text.size(); at += piece) shown += reader.pass(text.substr(at, piece));
    EXPECT_EQ(shown, "one\ntwo\nthree\n");
    EXPECT_EQ(reader.reports(), (std::vector{kKilled, heard(1), started(0)}));
  }
}

TEST(RankReport, OfSeveralLinesIsItsFirstAndIsShort) {
  ReportReader reader;
  reader.pass(to_line({What::failed, 1, 2, "first\nsecond"}) + to_line({What::failed, 3, 2, std::string(9000, 'x')}));
  ASSERT_EQ(reader.reports().size(), 2u);
  EXPECT_EQ(reader.reports()[0].text, "first");
  EXPECT_LT(to_line(reader.reports()[1]).size(), 4096u) << "what a pipe takes in one piece";
}

TEST(RankReport, ThatMakesNoSenseIsLeftOut) {
  ReportReader reader;
  std::string shown;
  for (const char* bad : {"\x1e\n", "\x1ekilled\n",
                          "\x1ekilled\x1f-1\x1f"
                          "9\x1f"
                          "x\n",
                          "\x1e"
                          "eaten\x1f"
                          "1\x1f"
                          "9\x1fx\n",
                          "\x1ekilled\x1f"
                          "1\x1fnine\x1fx\n"})
    shown += reader.pass(bad);
  shown += reader.pass("\x1e" + std::string(10'000, 'x'));
  EXPECT_EQ(shown + reader.pass("\nthe end\n"), "\nthe end\n");
  EXPECT_TRUE(reader.reports().empty());
}

}  // namespace
}  // namespace keel::cli
