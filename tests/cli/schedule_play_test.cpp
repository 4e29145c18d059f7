// Schedules played with words, and the page of `keel comm --draw`.

#include "cli/schedule_play.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "keel/dist/comm/algorithms.h"
#include "tests/cli/sandbox.h"
#include "tests/error_of.h"

namespace keel::cli {
namespace {

using testing::error_of;
using testing::Outcome;
using testing::Sandbox;

const std::vector<std::string>& outputs(const Play& played, int rank) {
  return played.states.back()[static_cast<std::size_t>(rank)][static_cast<std::size_t>(Place::output)];
}

std::set<int> set_of(std::string_view text) {
  const std::vector<int> added = added_in(text);
  return {added.begin(), added.end()};
}

// Every rank's number once, in an element that is a sum over all.
void expect_whole_sum(const std::string& text, const Play& played) {
  EXPECT_EQ(added_in(text).size(), static_cast<std::size_t>(played.ranks)) << text;
  EXPECT_EQ(set_of(text).size(), static_cast<std::size_t>(played.ranks)) << text;
}

TEST(SchedulePlay, EveryAlgorithmAddsEachRankOnceAndEveryRankInOneOrder) {
  for (const Algorithm* const algorithm : algorithms())
    for (const int ranks : {2, 3, 4, 7, 8}) {
      SCOPED_TRACE(concat(algorithm->name, ' ', ranks));
      const std::int64_t count = 2 * ranks + 1;
      const Play all = play("all_reduce", algorithm->name, ranks, count, 0, 2);
      for (int rank = 0; rank < ranks; ++rank) {
        ASSERT_EQ(std::ssize(outputs(all, rank)), count);
        EXPECT_EQ(outputs(all, rank), outputs(all, 0));
      }
      for (const std::string& text : outputs(all, 0)) expect_whole_sum(text, all);
      const Play parts = play("reduce_scatter", algorithm->name, ranks, count);
      for (int rank = 0; rank < ranks; ++rank)
        for (const std::string& text : outputs(parts, rank)) expect_whole_sum(text, parts);
      const Play root = play("reduce", algorithm->name, ranks, count, ranks - 1);
      for (const std::string& text : outputs(root, ranks - 1)) expect_whole_sum(text, root);
    }
}

TEST(SchedulePlay, ARingAddsAlongTheRing) {
  const Play played = play("all_reduce", "ring", 4, 4);
  EXPECT_EQ(outputs(played, 2), (std::vector<std::string>{"((1+2)+3)+0", "((2+3)+0)+1", "((3+0)+1)+2", "((0+1)+2)+3"}));
  EXPECT_EQ(played.ticks, 6);
  EXPECT_EQ(played.messages.size(), 24u);
  EXPECT_EQ(played.sent, (std::vector<std::int64_t>{6, 6, 6, 6}));
}

TEST(SchedulePlay, MovesWithoutAdding) {
  for (const int ranks : {2, 3, 5}) {
    for (const Algorithm* const algorithm : algorithms()) {
      const Play gathered = play("all_gather", algorithm->name, ranks, ranks);
      for (int rank = 0; rank < ranks; ++rank)
        for (int i = 0; i < ranks; ++i)
          EXPECT_EQ(outputs(gathered, rank)[static_cast<std::size_t>(i)], std::to_string(i)) << algorithm->name;
    }
    const int root = ranks - 1;
    for (const char* const way : {"tree", "scattered"}) {
      const Play all = play("broadcast", way, ranks, 2 * ranks, root);
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_EQ(outputs(all, rank),
                  std::vector<std::string>(static_cast<std::size_t>(2 * ranks), std::to_string(root)));
    }
    EXPECT_EQ(outputs(play("scatter", "direct", ranks, ranks, root), 0),
              std::vector<std::string>{std::to_string(root)});
    const Play whole = play("gather", "direct", ranks, ranks, root),
               exchanged = play("all_to_all", "direct", ranks, ranks);
    for (int i = 0; i < ranks; ++i) {
      EXPECT_EQ(outputs(whole, root)[static_cast<std::size_t>(i)], std::to_string(i));
      EXPECT_EQ(outputs(exchanged, 1)[static_cast<std::size_t>(i)], std::to_string(i));
    }
  }
}

TEST(SchedulePlay, SaysWhatThereIs) {
  EXPECT_NE(error_of([] { play("all_reduce", "rnig", 4, 4); }).find("ring"), std::string::npos);
  EXPECT_NE(error_of([] { play("broadcast", "ring", 4, 4); }).find("tree, scattered"), std::string::npos);
  EXPECT_NE(error_of([] { play("barrier", "ring", 4, 4); }).find("all_to_all"), std::string::npos);
  EXPECT_NE(error_of([] { play("reduce", "ring", 4, 4, 4); }).find("no root 4 among 4"), std::string::npos);
}

TEST(DrawCommand, WritesAPageInOneFile) {
  const Sandbox sandbox;
  const Outcome drawn = sandbox.keel("comm --draw ring -N 8 --out ring.html");
  EXPECT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_NE(
      drawn.out.find("112 messages in 14 steps; a rank sends 14 of 8 parts of the tensor, at most, and 14 follow"),
      std::string::npos)
      << drawn.out;
  const Outcome tree = sandbox.keel("comm --draw tree -N 4 --out tree.html");
  EXPECT_NE(tree.out.find("6 messages in 4 steps; a rank sends 8 of 4 parts of the tensor, at most, and 16 follow"),
            std::string::npos)
      << tree.out;
  const std::string page = sandbox.read("ring.html");
  EXPECT_NE(page.find("\"algorithm\":\"ring\""), std::string::npos);
  EXPECT_EQ(page.find("/*"), std::string::npos) << "a place that was not filled";
  std::string rest = page;
  const std::string_view name_of_svg = "http://www.w3.org/2000/svg";  // a name, nowhere to go
  rest.erase(rest.find(name_of_svg), name_of_svg.size());
  for (const char* const outside : {"http://", "https://", "src="})
    EXPECT_EQ(rest.find(outside), std::string::npos) << outside;
  const Outcome bad = sandbox.keel("comm --draw rings -N 8");
  EXPECT_EQ(bad.code, 2);
  EXPECT_NE(bad.err.find("ring"), std::string::npos);
  EXPECT_EQ(sandbox.keel("comm --draw ring -N 33").code, 2);
  EXPECT_EQ(sandbox.keel("comm --draw ring -N 4 --root all reduce").code, 2);
}

}  // namespace
}  // namespace keel::cli
