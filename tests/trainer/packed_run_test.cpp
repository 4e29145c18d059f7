// Runs on documents that share rows, and on mixtures of sources.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "keel/runtime/file.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

// 90 objects of different lengths, and 200 lines.
void write_sources(const TemporaryFolder& place) {
  std::string objects;
  for (int i = 0; i < 90; ++i) objects += concat("{\"text\": \"", std::string(1 + i * i % 29, 'a' + i % 7), "\"}\n");
  write_text_file(place / "a.jsonl", objects);
  write_text_file(place / "b.txt", sample_text());
}

Config packed_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  more.insert(more.begin(), concat("run=", place / run));
  more.insert(more.begin(),
              concat("data.mixture=[{path: ", place / "a.jsonl", ", weight: 3}, {path: ", place / "b.txt", "}]"));
  return parse_config(R"(
steps: 7
model: {layers: 1, heads: 2, width: 16, block: 32, dropout: 0.1}
data: {type: mixture, packing: true}
batch: {global: 6, micro: 2}
optimizer: {lr: 1e-2}
eval: {every: 3}
checkpoint: {every: 3}
log: {every: 1}
threads: 1
)",
                      "packed.yaml", more);
}

TEST(PackedRun, HasTheSameBitsInEveryStageAndAfterAResumeInAnotherOne) {
  for (const char* packing : {"data.packing=true", "data.packing=false"})
    for (const int n : {1, 2, 3, 4}) {
      const TemporaryFolder place;
      write_sources(place);
      for (const char* stage : {"ddp-fp32", "zero1-fp32", "zero2-fp32", "zero3-fp32"})
        train_by(n, packed_run(place, stage, {concat("strategy=", stage), packing}));
      const std::string bits = weights_of(packed_run(place, "ddp-fp32"));
      for (const char* stage : {"zero1-fp32", "zero2-fp32", "zero3-fp32"})
        EXPECT_TRUE(weights_of(packed_run(place, stage)) == bits) << stage << ' ' << n;
      train_by(n, packed_run(place, "resumed", {"strategy=zero1-fp32", packing}), 4);
      train_by(n, packed_run(place, "resumed", {"strategy=zero3-fp32", packing, "resume=auto"}));
      EXPECT_TRUE(weights_of(packed_run(place, "resumed")) == bits) << n;
    }
}

TEST(PackedRun, IsEvaluatedAlikeByAnyNumberOfRanks) {
  const TemporaryFolder place;
  write_sources(place);
  double alone = 0;
  for (const int n : {1, 2, 3, 4}) {
    const auto told = train_by(n, packed_run(place, concat("r", n), {"steps=1", "optimizer.lr=1e-30", "eval.every=1"}));
    if (n == 1) alone = told[0]->validation;
    EXPECT_EQ(told[0]->validation, alone) << n;
    EXPECT_GT(alone, 1);
  }
}

TEST(PackedRun, OfOneTextTrainsOnItsLines) {
  const TemporaryFolder place;
  Recorder told;
  train(small_run(place, "r", {"data.packing=true", "steps=40", "eval.every=40"}), told);
  EXPECT_LT(told.losses.back(), 0.9 * told.losses.front());
}

TEST(PackedRun, RefusesSourcesThatDoNotFitTogether) {
  const TemporaryFolder place;
  write_sources(place);
  const auto said = [&](std::vector<std::string> settings) {
    Recorder silent;
    return error_of([&] { train(packed_run(place, "r", std::move(settings)), silent); });
  };
  EXPECT_NE(said({"data.mixture=[]"}).find("data.mixture has no sources"), std::string::npos);
  EXPECT_NE(said({"data.mixture=[{path: nowhere.txt}]"}).find("nowhere.txt"), std::string::npos);
  EXPECT_NE(said({"data.mixture=[{weight: 2}]"}).find("[0].path: is missing"), std::string::npos);
  EXPECT_NE(said({"data.mixture=[{path: a, weight: 0}]"}).find("[0].weight: expects a number > 0"), std::string::npos);
  EXPECT_NE(said({"model.vocabulary=7"}).find("model.vocabulary is 7"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(place / "r"));
}

}  // namespace
}  // namespace keel
