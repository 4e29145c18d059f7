// Validation sets by name: files of their own, and rows that a column chooses; and what is told while files are read.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "keel/trainer/evaluate_run.h"
#include "keel/trainer/metrics.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

const Tell kQuietly = [](LogLevel, std::string_view) {};

// Rows of the folds a, b, c, a, ..., whose number is a column, too.
std::string folded_table(int rows) {
  std::string table = "a,number,fold,y\n";
  for (int i = 0; i < rows; ++i) table += concat(0.25 * i, ',', i % 3, ',', "abc"[i % 3], ',', std::sin(i), '\n');
  return table;
}

Config folds_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  write_text_file(place / "t.csv", folded_table(30));
  write_text_file(place / "far.csv", "a,y\n1,2\n3,4\n5,6\n");
  more.insert(more.begin(), {concat("run=", place / run), concat("data.path=", place / "t.csv")});
  return parse_config(R"(
steps: 4
task: {type: supervised}
model: {trunk: none, heads: [{name: y}]}
batch: {global: 5, micro: 2}
eval: {every: 2}
checkpoint: {every: 2}
log: {every: 1}
threads: 1
)",
                      "folds.yaml", more);
}

// The sets of an evaluation of the run, as "name: number of rows" can be told from their values.
std::vector<EvaluatedSet> evaluated(const std::string& run, int ranks = 1) {
  std::vector<EvaluatedSet> sets;
  run_ranks(ranks, [&](Communicator& group) {
    TrainedModel trained({.path = run}, group, kQuietly);
    const EvaluatedRun all = evaluate_run(trained);
    if (group.rank() == 0) sets = all.sets;
  });
  return sets;
}

double recorded(const Config& config, std::string_view name) {
  double last = std::nan("");
  for (const Json& record : read_metrics(RunFolder(config.run).metrics()))
    if (record.contains(name)) last = record.at(name).number();
  return last;
}

TEST(ValidationSets, OfATableAreFilesAndRowsThatAColumnChooses) {
  const TemporaryFolder place;
  const std::string sets = concat("data.sets=[{name: far, path: ", place / "far.csv",
                                  "}, {name: dev, values: [b]}, {name: test, values: [c]}]");
  const Config config = folds_run(place, "run", {"data.split_column=fold", sets, "data.inputs=[a]"});
  Recorder told;
  train(config, told);
  EXPECT_EQ(recorded(config, "epoch"), 2) << "10 rows of fold a make 2 steps of 5";
  for (const char* name : {"far/loss", "dev/loss", "test/loss", "dev/y_mae"})
    EXPECT_TRUE(std::isfinite(recorded(config, name))) << name;
  const std::vector<EvaluatedSet> alone = evaluated(config.run);
  ASSERT_EQ(alone.size(), 3u);
  for (const int n : {2, 3}) {
    const std::vector<EvaluatedSet> several = evaluated(config.run, n);
    for (std::size_t i = 0; i < alone.size(); ++i)
      for (std::size_t k = 0; k < alone[i].values.size(); ++k)
        EXPECT_EQ(several[i].values[k].value, alone[i].values[k].value) << n << ' ' << alone[i].values[k].name;
  }
  // The same rows as files of their own.
  std::string rest = "a,number,fold,y\n", held = rest;
  for (int i = 0; i < 30; ++i) {
    const std::string row = concat(0.25 * i, ',', i % 3, ',', "abc"[i % 3], ',', std::sin(i), '\n');
    if (i % 3 == 0) rest += row;
    if (i % 3 == 1) held += row;
  }
  Config by_files = folds_run(place, "files",
                              {"data.inputs=[a]", concat("data.sets=[{name: dev, path: ", place / "b.csv", "}]"),
                               concat("data.path=", place / "a.csv")});
  write_text_file(place / "a.csv", rest);
  write_text_file(place / "b.csv", held);
  Recorder of_files;
  train(by_files, of_files);
  EXPECT_EQ(recorded(by_files, "dev/loss"), recorded(config, "dev/loss"));
}

TEST(ValidationSets, LeaveTheColumnThatDividesToNoModel) {
  const TemporaryFolder place;
  Recorder told;
  const Config config = folds_run(place, "run", {"data.split_column=number", "data.sets=[{name: dev, values: [1]}]"});
  train(config, told);
  EXPECT_NE(told.messages.find("the model reads a"), std::string::npos) << told.messages;
  EXPECT_EQ(told.messages.find("number"), std::string::npos) << told.messages;
}

TEST(ValidationSets, OfATextAreFilesAndFolders) {
  const TemporaryFolder place;
  write_text_file(place / "dev.txt", "line 5 of 7\nline 6 of 8\n");
  std::filesystem::create_directory(place / "more");
  write_text_file(place / "more/1.txt", "line 5 of 7\n");
  write_text_file(place / "more/2.txt", "line 6 of 8\n");
  const std::string sets =
      concat("data.sets=[{name: dev, path: ", place / "dev.txt", "}, {name: folder, path: ", place / "more", "}]");
  for (const char* packing : {"data.packing=false", "data.packing=true"}) {
    const Config config = small_run(place, packing, {packing, sets, "steps=4", "data.tokenizer=byte"});
    train_by(2, config);
    const double dev = recorded(config, "dev/loss"), folder = recorded(config, "folder/loss");
    EXPECT_TRUE(std::isfinite(dev) && std::isfinite(folder)) << packing;
    EXPECT_TRUE(std::isnan(recorded(config, "validation_loss")));
    const bool is_packed = std::string_view(packing).ends_with("true");
    EXPECT_TRUE(is_packed || dev == folder) << "one text in two files: " << dev << ' ' << folder;
    for (const int n : {1, 2, 3}) EXPECT_EQ(evaluated(config.run, n).at(0).values.at(0).value, dev) << n;
  }
  const Config alone = small_run(place, "alone", {concat("data.validation_path=", place / "dev.txt"), "steps=4"});
  train_by(1, alone);
  EXPECT_EQ(recorded(alone, "validation_loss"), [&] {
    const Config named = small_run(place, "named", {sets, "steps=4"});
    train_by(1, named);
    return recorded(named, "dev/loss");
  }());
}

TEST(ValidationSets, OfPackedDocumentsGoByAField) {
  const TemporaryFolder place;
  std::string lines;
  for (int i = 0; i < 60; ++i)
    lines += concat("{\"text\": \"", std::string(static_cast<std::size_t>(3 + i % 11), static_cast<char>('a' + i % 5)),
                    "\", \"fold\": ", i % 3, "}\n");
  write_text_file(place / "d.jsonl", lines);
  const Config config = small_run(place, "run",
                                  {concat("data.path=", place / "d.jsonl"), "data.packing=true", "steps=4",
                                   "data.split_column=fold", "data.sets=[{name: dev, values: [0]}]"});
  train_by(1, config);
  EXPECT_TRUE(std::isfinite(recorded(config, "dev/loss")));
}

TEST(ValidationSets, RefuseWhatIsNotThere) {
  const TemporaryFolder place;
  const auto expect = [&](std::vector<std::string> words, std::string_view what) {
    Recorder silent;
    const std::string message = error_of([&] { train(folds_run(place, "r", std::move(words)), silent); });
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_FALSE(std::filesystem::exists(place / "r"));
  };
  const std::string dev = "data.sets=[{name: dev, values: [b]}]";
  expect({"data.split_column=flod", dev}, "data.split_column: '");
  expect({"data.split_column=flod", dev}, "has no field 'flod'; did you mean 'fold'?");
  expect({"data.split_column=fold", "data.sets=[{name: dev, values: [d]}]"}, "no row has 'd' in the column 'fold'");
  expect({"data.split_column=fold", "data.sets=[{name: dev, values: [a, b, c]}]"}, "none is left to train on");
  expect({"data.split_column=fold", "data.sets=[{name: x, values: [a]}, {name: y, values: [a]}]"},
         "'a' is named twice");
  expect({dev}, "a set has values, and data.split_column does not say of which column");
  expect({"data.split_column=fold"}, "none of data.sets has values of it");
  expect({"data.sets=[{name: dev}]"}, "set 'dev' has neither path nor values");
  expect({"data.split_column=fold", "data.sets=[{name: dev, path: x, values: [a]}]"}, "has path and values");
  expect({"data.sets=[{name: a/b, path: x}]"}, "set 'a/b': a name is letters, digits and _");
  expect({"data.sets=[{name: train, path: x}]"}, "records have keel's own numbers of this name");
  expect({"data.sets=[{name: x, path: x}, {name: x, path: y}]"}, "two sets are named 'x'");
  expect({"data.sets=[{name: x, path: y}]", "data.validation_path=z"}, "remove one of the two");
  expect({"data.sets=[{name: x, path: nowhere.csv}]"}, "nowhere.csv");
  write_text_file(place / "empty.csv", "a,number,fold,y\n");
  expect({concat("data.sets=[{name: x, path: ", place / "empty.csv", "}]")}, "empty.csv' has no examples");
}

TEST(ValidationSets, OfATextRefuseWhatDoesNotBelongToIt) {
  const TemporaryFolder place;
  const auto expect = [&](std::vector<std::string> words, std::string_view what) {
    Recorder silent;
    const std::string message = error_of([&] { train(small_run(place, "r", std::move(words)), silent); });
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_FALSE(std::filesystem::exists(place / "r"));
  };
  write_text_file(place / "other.txt", "line 5\nof Z\n");
  write_text_file(place / "nothing.txt", "");
  expect({concat("data.validation_path=", place / "other.txt")}, "other.txt");
  expect({concat("data.sets=[{name: x, path: ", place / "nothing.txt", "}]")}, "nothing.txt' is empty");
  expect({"data.sets=[{name: x, values: [a]}]"}, "windows of a text have none; give its path");
  expect({"data.split_column=x"}, "data.split_column: applies only when data.packing is true");
}

// Counts what it is told while files are indexed.
class ReadingObserver : public TrainObserver {
 public:
  void on_reading(std::uint64_t done, std::uint64_t all) override {
    ++calls;
    is_whole = done == all;
  }
  int calls = 0;
  bool is_whole = false;
};

TEST(ReadingOfARun, IsToldOnTheFirstRankAlone) {
  const TemporaryFolder place;
  const Config config = folds_run(place, "run");
  std::vector<ReadingObserver> told(3);
  run_ranks(3, [&](Communicator& ranks) { train(config, told[static_cast<std::size_t>(ranks.rank())], ranks); });
  EXPECT_GT(told[0].calls, 0);
  EXPECT_TRUE(told[0].is_whole) << "the last call has all";
  for (const std::size_t rank : {1, 2}) EXPECT_EQ(told[rank].calls, 0);
}

TEST(ValidationSets, OfATableThatHaveChangedSinceTheRunBeganAreAnErrorThatNamesThem) {
  const TemporaryFolder place;
  const auto run = [&](std::vector<std::string> more) {
    more.push_back(concat("data.sets=[{name: far, path: ", place / "far.csv", "}, {name: dev, values: [b]}]"));
    more.insert(more.end(), {"data.split_column=fold", "data.inputs=[a]"});
    return folds_run(place, "run", more);
  };
  Recorder first(2), second(3), third;
  train(run({}), first);
  train(run({"resume=auto"}), second);
  EXPECT_EQ(second.losses.size(), 1u) << second.messages;
  const Config config = run({"resume=auto"});
  write_text_file(place / "far.csv", "a,y\n1,2\n3,4\n5,7\n");
  const std::string message = error_of([&] { train(config, third); });
  EXPECT_TRUE(message.starts_with(concat("'", place / "far.csv", "', the validation set 'far', has changed since '")))
      << message;
}

}  // namespace
}  // namespace keel
