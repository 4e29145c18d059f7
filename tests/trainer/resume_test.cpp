// Where a run goes on, and what it says of that.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;
namespace fs = std::filesystem;

std::string said_by(const Config& config) {
  Recorder recorder;
  train(config, recorder);
  return recorder.messages;
}

std::string refusal_by(const Config& config) {
  Recorder recorder;
  return error_of([&] { train(config, recorder); });
}

TEST(Resume, TheFolderOfARunMeansItsNewestCheckpoint) {
  const TemporaryFolder place;
  said_by(small_run(place, "made", {"steps=10", "scheduler.steps=12"}));
  for (const auto& [run, means] : std::vector<std::pair<std::string, std::string>>{
           {"other", "made"}, {"third", "made/checkpoints"}, {"fourth", "made/./checkpoints/"}, {"made", "made"}}) {
    const std::string said = said_by(small_run(place, run, {"resume=" + (place / means)}));
    EXPECT_NE(said.find("goes on after step 10 from "), std::string::npos) << said;
  }
  said_by(small_run(place, "whole"));
  for (const char* run : {"made", "other", "third", "fourth"})
    EXPECT_TRUE(weights_of(small_run(place, run)) == weights_of(small_run(place, "whole"))) << run;
}

TEST(Resume, AFolderWithoutACheckpointIsNamed) {
  const TemporaryFolder place;
  fs::create_directories(place / "empty");
  write_text_file(place / "empty/config.yaml", "steps: 1\n");
  EXPECT_EQ(refusal_by(small_run(place, "run", {"resume=" + (place / "empty")})),
            concat("resume: the run in '", place / "empty", "' has no checkpoint yet"));
  EXPECT_EQ(refusal_by(small_run(place, "run", {"resume=" + (place / "absent")})),
            concat("resume: there is no '", place / "absent",
                   "'; name a checkpoint, or the folder of a run, or say resume=auto"));
  EXPECT_FALSE(fs::exists(place / "run/config.yaml"));
}

TEST(Resume, AutoSaysThatItBeginsAnewAndThatNothingIsLeft) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"resume=auto"});
  EXPECT_NE(said_by(config).find(concat("'", config.run, "' holds no checkpoint: the run begins anew\n")),
            std::string::npos);
  const std::string weights = weights_of(config), said = said_by(config);
  EXPECT_NE(said.find("step-00000012 is done: it has 12 steps, and the run has 12; to go on, raise steps\n"),
            std::string::npos)
      << said;
  EXPECT_EQ(said.find("goes on"), std::string::npos) << said;
  EXPECT_TRUE(weights_of(config) == weights);
}

TEST(Resume, AnotherOptimizersStateIsRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder place;
  said_by(small_run(place, "run"));
  const std::string described = read_text_file(place / "run/config.yaml");
  const std::string refused =
      refusal_by(small_run(place, "run", {"resume=auto", "steps=14", "optimizer={type: SGD, lr: 0.1, momentum: 0.9}"}));
  EXPECT_NE(refused.find("was trained by AdamW, which keeps "), std::string::npos) << refused;
  EXPECT_NE(refused.find(", and SGD would go on from "), std::string::npos) << refused;
  EXPECT_NE(refused.find("run=OTHER"), std::string::npos) << refused;
  EXPECT_EQ(read_text_file(place / "run/config.yaml"), described);
  // The same states under another name go on.
  EXPECT_NE(said_by(small_run(place, "run", {"resume=auto", "steps=14", "optimizer={type: Adam, lr: 1e-2}"}))
                .find("goes on after step 12"),
            std::string::npos);
  const std::string bare =
      refusal_by(small_run(place, "run", {"resume=auto", "steps=16", "optimizer={type: SGD, lr: 0.1}"}));
  EXPECT_NE(bare.find("SGD would go on from nothing"), std::string::npos) << bare;
}

}  // namespace
}  // namespace keel
