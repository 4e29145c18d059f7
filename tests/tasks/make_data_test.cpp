// Training and validation data of one data set.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>

#include "keel/data/divide_rows.h"
#include "keel/data/map.h"
#include "keel/tasks/task.h"
#include "tests/data/list_dataset.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using testing::error_of;

// Example i is a sequence of i + 1 numbers.
class Stairs : public Dataset {
 public:
  std::int64_t size() const override { return 12; }
  Example example(std::int64_t i) const override {
    check_index(i);
    Example example;
    example.set("steps", Integers{{i + 1}, std::vector<std::int64_t>(static_cast<std::size_t>(i + 1), i)});
    return example;
  }
  std::string fingerprint() const override { return "stairs"; }
};

// All batches of training and validation.
void load_all_of(const std::vector<std::string>& varying) {
  TaskSite site;
  site.rows = site.validation_rows = 2;
  site.host = Context::create();
  const auto stairs = std::make_shared<Stairs>();
  const Data data = make_data(site, stairs, 0.5, pad({.fields = {{"steps"}}, .mask = true}), varying);
  for (std::int64_t step = 0; step < 3; ++step) {
    const Batch batch = data.training->load_all(step);
    EXPECT_EQ(batch["mask"].shape(), batch["steps"].shape());
    data.validation.front().source->load_all(step);
  }
  const auto asked = in_order(site, stairs, pad({.fields = {{"steps"}}}), {"steps"});
  EXPECT_EQ(asked->load_all(5)["steps"].dim(1), 12);
}

TEST(MakeData, TakesRowsThatAreFilledUpToTheLongestOfEachBatch) {
  EXPECT_EQ(error_of([] { load_all_of({"steps", "mask"}); }), "");
  EXPECT_NE(error_of([] { load_all_of({}); }).find("name those fields (SourceOptions::varying"), std::string::npos);
}

struct Epochs {
  std::int64_t size = 1, rows = 1;
  LastRows last = LastRows::fewer;
  std::uint64_t seed = 1;
};

Data data_of(const Epochs& epochs) {
  TaskSite site;
  site.rows = epochs.rows;
  site.validation_rows = 4;
  site.data_seed = epochs.seed;
  site.host = Context::create();
  const DatasetPtr examples = map_each(
      testing::numbered(epochs.size), [](const Example& example) { return Example().set("x", example["x"]); }, "x");
  return make_data(site, DividedExamples{.trained = examples, .validation = {}}, stack(), {.last = epochs.last});
}

std::vector<std::int32_t> numbers_of(const Batch& batch) { return batch["x"].to_vector<std::int32_t>(); }

// The rows of a step as ranks load them, in micro-batches, each from data that was opened for this step alone: a run
// that was resumed there.
std::vector<std::int32_t> loaded_by_ranks(const Epochs& epochs, std::int64_t step, std::int64_t world,
                                          std::int64_t micro) {
  std::vector<std::int32_t> all;
  for (std::int64_t rank = 0; rank < world; ++rank) {
    const Data resumed = data_of(epochs);
    for (const Rows range : divide_rows(resumed.training->rows(step), micro, rank, world)) {
      if (range.begin == range.end) continue;
      const std::vector<std::int32_t> part = numbers_of(resumed.training->load(step, range));
      all.insert(all.end(), part.begin(), part.end());
    }
  }
  return all;
}

// What three epochs read, as a sequence that is cut after every epoch's rows.
void expect_epochs_of_each_example(const Epochs& epochs, const std::vector<std::int32_t>& read) {
  const bool are_dropped = epochs.last == LastRows::drop;
  const std::int64_t used = are_dropped ? epochs.size / epochs.rows * epochs.rows : epochs.size;
  for (std::int64_t begin = 0; begin + used <= std::ssize(read); begin += used) {
    const std::set<std::int32_t> epoch(read.begin() + begin, read.begin() + begin + used);
    EXPECT_EQ(std::ssize(epoch), used) << "an example came twice in the epoch that begins at row " << begin;
  }
}

TEST(MakeData, RowsAreAFunctionOfTheStepHoweverEpochsEndAndWhoeverLoadsThem) {
  std::mt19937 draw(5);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(draw() % static_cast<std::uint64_t>(high - low + 1));
  };
  for (int trial = 0; trial < 60; ++trial) {
    Epochs epochs = {.size = between(1, 40), .rows = between(1, 12), .seed = draw()};
    epochs.last = std::array{LastRows::fewer, LastRows::join, LastRows::drop}[static_cast<std::size_t>(trial % 3)];
    if (epochs.last == LastRows::drop) epochs.rows = std::min(epochs.rows, epochs.size);
    const Data whole = data_of(epochs);
    const auto steps = static_cast<std::int64_t>(3 * whole.training->steps_per_epoch());
    std::vector<std::int32_t> read;
    for (std::int64_t step = 0; step < steps; ++step) {
      const std::vector<std::int32_t> rows = numbers_of(whole.training->load_all(step));
      const bool is_short = epochs.last == LastRows::fewer && epochs.size % epochs.rows != 0 &&
                            (step + 1) % static_cast<std::int64_t>(whole.training->steps_per_epoch()) == 0;
      EXPECT_EQ(std::ssize(rows), is_short ? epochs.size % epochs.rows : epochs.rows);
      read.insert(read.end(), rows.begin(), rows.end());
      EXPECT_EQ(loaded_by_ranks(epochs, step, between(1, 4), between(1, 5)), rows);
    }
    expect_epochs_of_each_example(epochs, read);
  }
}

TEST(MakeData, RefusesToDropAllOfAnEpochAndSetsWithoutExamples) {
  EXPECT_NE(error_of([] {
              data_of({.size = 3, .rows = 4, .last = LastRows::drop});
            }).find("a step of 4 rows is more than the 3 examples of an epoch, whose incomplete steps are dropped"),
            std::string::npos);
  TaskSite site;
  site.host = Context::create();
  const DividedExamples divided = {.trained = testing::numbered(3), .validation = {{"dev", testing::numbered(0)}}};
  EXPECT_NE(error_of([&] { make_data(site, divided, stack()); }).find("the validation set 'dev' has no examples"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
