// Which files of a run's folder mean what.

#include "keel/trainer/run_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "keel/runtime/file.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::TemporaryFolder;
namespace fs = std::filesystem;

TEST(RunFolder, HoldsARunOnceItHasRecordsWeightsOrACheckpoint) {
  const auto holds = [](const std::string& file, const std::string& text) {
    const TemporaryFolder place;
    fs::create_directories(place / "checkpoints");
    if (!file.empty()) write_text_file(place / file, text);
    return RunFolder(place.path()).holds_run();
  };
  EXPECT_FALSE(RunFolder("/there/is/no/such/folder").holds_run());
  EXPECT_FALSE(holds("", ""));
  EXPECT_FALSE(holds("config.yaml", "steps: 1\n"));
  EXPECT_FALSE(holds("metrics.jsonl", "")) << "a run that ended before its first record";
  EXPECT_TRUE(holds("metrics.jsonl", "{}\n"));
  EXPECT_TRUE(holds("model.safetensors", "weights"));
  EXPECT_TRUE(holds("model.safetensors", ""));
  EXPECT_TRUE(holds("checkpoints/step-00000005", ""));
}

TEST(RunFolder, ListsTheBestOfEachRuleWithTheRulesName) {
  const TemporaryFolder place;
  const RunFolder run(place.path());
  EXPECT_EQ(run.best_by("loss"), place / "checkpoints/best.loss");
  EXPECT_EQ(run.best_by("valid/loss:max"), place / "checkpoints/best.valid__loss:max");
  EXPECT_TRUE(run.all_best().empty());
  fs::create_directories(place / "checkpoints");
  write_text_file(run.best(), "step-00000005\n");
  write_text_file(run.best_by("valid/loss:max"), "step-00000010\n");
  write_text_file(run.best_by("accuracy"), "step-00000015");
  write_text_file(run.best_by("empty"), "");
  write_text_file(run.best_by("elsewhere"), "../step-00000005\n");
  write_text_file(run.best() + "x", "step-00000005\n");
  write_text_file(run.latest(), "step-00000015\n");
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"step-00000005", ""}, {"step-00000015", "accuracy"}, {"step-00000010", "valid__loss:max"}};
  EXPECT_EQ(run.all_best(), expected);
}

}  // namespace
}  // namespace keel
