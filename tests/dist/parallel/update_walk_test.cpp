// The order in which an update walks over the units that lie in files.

#include "keel/dist/parallel/update_walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;
using Walk = WalkStep::Kind;

// Follows a walk by the rules of its comments.
class WalkFollower {
 public:
  explicit WalkFollower(std::span<const WalkedUnit> units) : units_(units), done_(units.size()) {}

  void take(const WalkStep& step) {
    const WalkedUnit& unit = units_[step.unit];
    const std::int64_t count = step.piece.count();
    const int before = state_[{step.unit, step.piece.begin}]++;
    EXPECT_EQ(before, step.kind == Walk::fetch ? 0 : step.kind == Walk::update ? 1 : 2);
    EXPECT_EQ(step.is_last, step.piece.end == unit.elements);
    if (step.kind == Walk::fetch)
      peak_ = std::max(peak_, in_memory_ += count * unit.read + (step.is_first() ? unit.whole_read : 0));
    if (step.kind == Walk::settle) in_memory_ -= count * unit.written + (step.is_last ? unit.whole_written : 0);
    if (step.kind != Walk::update) return;
    EXPECT_TRUE(std::all_of(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(step.unit), [&](const auto& d) {
      return d == units_[static_cast<std::size_t>(&d - done_.data())].elements;
    })) << "units follow each other";
    EXPECT_EQ(step.piece.begin, done_[step.unit]);
    done_[step.unit] = step.piece.end;
    in_memory_ -= count * (unit.read - unit.written) + (step.is_last ? unit.whole_read - unit.whole_written : 0);
  }
  void expect_at_end(const UpdateWalk& walk) const {
    EXPECT_EQ(walk.peak, peak_);
    EXPECT_EQ(in_memory_, 0);
    for (std::size_t unit = 0; unit < units_.size(); ++unit) EXPECT_EQ(done_[unit], units_[unit].elements);
    for (const auto& [piece, state] : state_) EXPECT_EQ(state, 3);
  }

 private:
  std::span<const WalkedUnit> units_;
  std::vector<std::int64_t> done_;  // elements, by unit
  std::map<std::pair<std::size_t, std::int64_t>, int> state_;
  std::int64_t in_memory_ = 0, peak_ = 0;
};

TEST(UpdateWalk, ReadsUpdatesAndWritesEachPieceOnceWithinItsBudget) {
  for (const std::vector<std::int64_t>& elements :
       {std::vector<std::int64_t>{}, {5}, {4, 4, 4, 4, 4, 4}, {1, 9, 2, 8, 3, 7}, {10, 1, 1, 1, 10, 0, 10}, {1000}})
    for (const std::int64_t piece : {1, 3, 8})
      for (const std::int64_t whole : {0, 7})
        for (const std::int64_t budget : {40, 53, 80, 4000}) {
          std::vector<WalkedUnit> units;
          for (const std::int64_t each : elements)
            units.push_back({.elements = each,
                             .read = 4,
                             .written = 3,
                             .whole_read = whole,
                             .whole_written = each % 2 == 0 ? whole : 0});
          const UpdateWalk walk = walk_update(units, piece, budget);
          EXPECT_LE(walk.peak, budget);
          WalkFollower walker(units);
          for (const WalkStep& step : walk.steps) walker.take(step);
          walker.expect_at_end(walk);
        }
}

TEST(UpdateWalk, TakesAUnitOfWhichNothingComesInPiecesAtOnce) {
  const WalkedUnit whole{.elements = 10, .whole_read = 40, .whole_written = 40};
  EXPECT_EQ(walk_update(std::vector{whole}, 3, 160).steps,
            (std::vector<WalkStep>{
                {Walk::fetch, 0, {0, 10}, true}, {Walk::update, 0, {0, 10}, true}, {Walk::settle, 0, {0, 10}, true}}));
}

TEST(UpdateWalk, WithRoomForFourReadsTwoAheadWhileOneIsWritten) {
  const std::vector<WalkedUnit> units(5, {.elements = 10, .read = 1, .written = 1});
  std::vector<std::pair<Walk, std::size_t>> steps;
  for (const WalkStep& step : walk_update(units, 10, 40).steps) steps.emplace_back(step.kind, step.unit);
  const std::vector<std::pair<Walk, std::size_t>> expected = {
      {Walk::fetch, 0},  {Walk::fetch, 1},  {Walk::fetch, 2},  {Walk::fetch, 3},  {Walk::update, 0},
      {Walk::update, 1}, {Walk::settle, 0}, {Walk::fetch, 4},  {Walk::update, 2}, {Walk::update, 3},
      {Walk::update, 4}, {Walk::settle, 1}, {Walk::settle, 2}, {Walk::settle, 3}, {Walk::settle, 4}};
  EXPECT_EQ(steps, expected);
}

TEST(UpdateWalk, HasTheOrderOfPiecesThatItHasOfUnits) {
  const std::vector<WalkedUnit> pieces(5, {.elements = 10, .read = 2, .written = 2});
  const WalkedUnit unit = {.elements = 50, .read = 2, .written = 2};
  const UpdateWalk of_units = walk_update(pieces, 10, 80), of_one = walk_update(std::span(&unit, 1), 10, 80);
  ASSERT_EQ(of_units.steps.size(), of_one.steps.size());
  for (std::size_t i = 0; i < of_one.steps.size(); ++i) {
    EXPECT_EQ(of_units.steps[i].kind, of_one.steps[i].kind);
    EXPECT_EQ(static_cast<std::int64_t>(10 * of_units.steps[i].unit), of_one.steps[i].piece.begin);
  }
  EXPECT_EQ(of_one.peak, 80);
}

TEST(UpdateWalk, TakesPiecesOfWhichFourFitIntoItsBudget) {
  constexpr std::int64_t kMebibyte = 1 << 20;
  const auto piece = [](const WalkedUnit& unit, std::int64_t budget) {
    return piece_of_walk(std::vector<WalkedUnit>{{}, unit}, budget);
  };
  const WalkedUnit large = {.elements = 100 * kMebibyte, .read = 16, .written = 12};
  EXPECT_EQ(piece(large, 1 << 30), kMebibyte / 2) << "the largest";
  EXPECT_EQ(piece(large, 16 * kMebibyte), kMebibyte / 4);
  EXPECT_EQ(piece(large, 16 * kMebibyte - 1), kMebibyte / 8);
  EXPECT_EQ(piece(large, 100), 2048) << "the smallest";
  WalkedUnit with_whole = large;
  with_whole.whole_read = 8 * kMebibyte;
  EXPECT_EQ(piece(with_whole, 16 * kMebibyte), kMebibyte / 8);
  EXPECT_EQ(piece({.elements = 4000, .read = 16}, 64 * 4000), kMebibyte / 2) << "a unit that is smaller than a piece";
}

TEST(UpdateWalk, RefusesAUnitThatNeedsMoreThanItsBudget) {
  const std::vector<WalkedUnit> units = {{.elements = 3, .read = 1}, {.elements = 9, .read = 2, .whole_read = 3}};
  EXPECT_EQ(error_of([&] { walk_update(units, 4, 10); }),
            "a unit of which 11 bytes are in memory does not fit into 10");
  EXPECT_EQ(error_of([&] { walk_update(units, 4, 11); }), "");
}

}  // namespace
}  // namespace keel
