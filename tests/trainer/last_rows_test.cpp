// The rows at an epoch's end that fill no step (data.last), in whole runs.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "keel/dist/comm/run_ranks.h"
#include "keel/trainer/compare.h"
#include "keel/trainer/metrics.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

constexpr int kTableRows = 23;  // in steps of 5

Config table_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  std::string table = "a,b,y\n";
  for (int i = 0; i < kTableRows; ++i) table += concat(i % 7, ',', 0.25 * i, ',', std::sin(i), '\n');
  write_text_file(place / "t.csv", table);
  more.insert(more.begin(), {concat("run=", place / run), concat("data.path=", place / "t.csv")});
  return parse_config(R"(
steps: 11
task: {type: supervised}
model: {trunk: dense 8 tanh; dropout 0.1, heads: [{name: y}]}
data: {validation: 0}
batch: {global: 5, micro: 2}
checkpoint: {every: 3}
log: {every: 1}
threads: 1
)",
                      "table.yaml", more);
}

// Documents that fill 26 rows, in steps of 8.
Config lines_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  std::string lines;
  for (int i = 0; i < 52; ++i) lines += "document\n";
  write_text_file(place / "lines.txt", lines);
  more.insert(more.begin(), {concat("data.path=", place / "lines.txt"), "data.packing=true", "data.validation=0",
                             "model.layers=1", "batch.global=8", "batch.micro=3", "steps=11", "eval.every=0"});
  return small_run(place, run, more);
}

using MakeRun = Config (*)(const TemporaryFolder&, const std::string&, std::vector<std::string>);

// A run that is stopped within an epoch, and goes on in another stage, has the bits of one that is not.
void expect_the_same_bits(MakeRun make, const char* last) {
  for (const int n : {1, 2, 3}) {
    const TemporaryFolder place;
    const std::string rule = concat("data.last=", last);
    train_by(n, make(place, "whole", {"strategy=ddp-fp32", rule}));
    const std::string bits = weights_of(make(place, "whole", {rule}));
    train_by(n, make(place, "zero3", {"strategy=zero3-fp32", rule}));
    EXPECT_TRUE(weights_of(make(place, "zero3", {rule})) == bits) << last << ' ' << n;
    train_by(n, make(place, "resumed", {"strategy=zero1-fp32", rule}), 7);
    train_by(n, make(place, "resumed", {"strategy=zero2-fp32", rule, "resume=auto"}));
    EXPECT_TRUE(weights_of(make(place, "resumed", {rule})) == bits) << last << ' ' << n;
  }
}

TEST(LastRowsOfARun, GiveTheSameBitsInEveryStageAndAfterAResume) {
  for (const char* last : {"fewer", "join", "drop"}) expect_the_same_bits(table_run, last);
}

TEST(LastRowsOfARun, OfPackedDocumentsGiveTheSameBitsInEveryStageAndAfterAResume) {
  for (const char* last : {"fewer", "join", "drop"}) expect_the_same_bits(lines_run, last);
}

// Where an epoch ends, by the records.
std::vector<double> epochs_of(const Config& config) {
  Recorder told;
  train(config, told);
  std::vector<double> epochs;
  for (const Json& record : read_metrics(RunFolder(config.run).metrics()))
    if (const Json* epoch = record.find("epoch")) epochs.push_back(epoch->number());
  return epochs;
}

TEST(LastRowsOfARun, SayHowManyStepsAnEpochHas) {
  const TemporaryFolder place;
  EXPECT_EQ(epochs_of(table_run(place, "fewer")).at(4), 1);
  EXPECT_EQ(epochs_of(table_run(place, "drop", {"data.last=drop"})).at(3), 1);
  EXPECT_NEAR(epochs_of(table_run(place, "join", {"data.last=join"})).at(0), 5.0 / kTableRows, 1e-12);
  const std::size_t two = epochs_of(table_run(place, "long", {"data.last=drop", "epochs=2"})).size();
  EXPECT_EQ(two, 8u) << "two epochs of four steps";
  EXPECT_EQ(epochs_of(lines_run(place, "lines", {"data.last=drop"})).at(2), 1) << "26 rows make 3 steps of 8";
}

TEST(LastRowsOfARun, AreAskedForWhereDataHasEpochsAlone) {
  const TemporaryFolder place;
  const auto said = [&](std::vector<std::string> words) {
    return error_of([&] { small_run(place, "r", std::move(words)); });
  };
  EXPECT_NE(said({"data.last=drop"}).find("data.last: applies only when data.packing is true"), std::string::npos);
  EXPECT_NE(said({"data.type=tokens", "data.last=drop"}).find("data.last: applies only when"), std::string::npos);
  EXPECT_NE(said({"data={type: mixture, mixture: [{path: a.txt}], packing: true, last: drop}"})
                .find("data.last: the files of a mixture have rounds of their own"),
            std::string::npos);
  Recorder silent;
  EXPECT_NE(error_of([&] {
              train(table_run(place, "r", {"data.last=drop", "batch.global=24"}), silent);
            }).find("a step of 24 rows is more than the 23 examples of an epoch"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(place / "r"));
}

// A step of fewer rows has fewer micro-batches, for which less is gathered and reduced.
TEST(LastRowsOfARun, AreComparedByTheBytesOfTheirMicroBatches) {
  const TemporaryFolder place;
  for (const int n : {2, 3})
    for (const char* more : {"sharding.accumulation=each_backward", "sharding.reshard_after_forward=false"}) {
      const std::vector<Variant> variants =
          variants_of(table_run(place, "run", {"data.last=fewer", "batch.micro=1", more}),
                      {.strategies = {"ddp-fp32", "zero1-fp32", "zero2-fp32", "zero3-fp32"}});
      run_ranks(n, [&](Communicator& ranks) {
        TrainObserver silent;
        for (const ComparedRun& run : compare(variants, {.steps = 8, .repeats = 1}, silent, ranks))
          EXPECT_EQ(run.sent, run.sent_by_formula) << run.name << ", " << n << " ranks, " << more;
      });
    }
}

}  // namespace
}  // namespace keel
