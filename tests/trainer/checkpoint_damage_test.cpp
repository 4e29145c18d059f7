// Checkpoints that somebody changed, moved or mixed: they are noticed, and the run goes on from the one before.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "keel/runtime/file.h"
#include "keel/trainer/checkpoint.h"
#include "keel/trainer/run_folder.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;
namespace fs = std::filesystem;

// A run of twelve steps, with checkpoints of steps 10 and 12, and a copy of it to damage.
class CheckpointDamage : public ::testing::Test {
 protected:
  CheckpointDamage() {
    Recorder recorder;
    train(small_run(place_, "whole"), recorder);
    weights_ = weights_of(small_run(place_, "whole"));
    fs::copy(place_ / "whole", place_ / "run", fs::copy_options::recursive);
  }

  std::string state_file(std::int64_t step) const { return folder_.checkpoint(step) + "/manifest.json"; }
  std::string state(std::int64_t step) const { return read_text_file(state_file(step)); }

  // Goes on from step 10 to the weights of the run that was left alone; the name of the damaged one's folder is told.
  void expect_falls_back(const std::string& what) {
    SCOPED_TRACE(what);
    Recorder recorder;
    const Config config = small_run(place_, "run", {"resume=auto"});
    EXPECT_NO_THROW(train(config, recorder));
    EXPECT_EQ(recorder.losses.size(), 2u);
    EXPECT_NE(recorder.messages.find("is not usable"), std::string::npos) << recorder.messages;
    EXPECT_TRUE(weights_of(config) == weights_);
    fs::remove_all(place_ / "run");
    fs::copy(place_ / "whole", place_ / "run", fs::copy_options::recursive);
  }

  TemporaryFolder place_;
  RunFolder folder_{place_ / "run"};
  std::string weights_;
};

std::string replaced(std::string text, const std::string& old, const std::string& by) {
  const std::size_t place = text.find(old);
  EXPECT_NE(place, std::string::npos) << old << " in " << text;
  return place == std::string::npos ? text : text.replace(place, old.size(), by);
}

TEST_F(CheckpointDamage, InAnyByteOfItsStateIsNoticed) {
  const std::string whole = state(12);
  EXPECT_EQ(read_whole(folder_.checkpoint(12)).step, 12);
  std::string unnoticed;
  for (std::size_t place = 0; place < whole.size(); ++place) {
    std::string text = whole;
    text[place] = static_cast<char>(text[place] ^ (1 << place % 8));
    if (error_of([&] { parse_manifest(text, "m"); }).find("'m' ") != 0) unnoticed += concat(' ', place);
  }
  EXPECT_EQ(unnoticed, "") << whole;
  for (std::size_t length = 0; length < whole.size(); length += 7)
    EXPECT_NE(error_of([&] { parse_manifest(whole.substr(0, length), "m"); }), "") << "cut to " << length;
  write_text_file(state_file(12), whole.substr(1));
  EXPECT_NE(error_of([&] { read_whole(folder_.checkpoint(12)); }), "");
}

TEST_F(CheckpointDamage, OfWhatItsStateSaysSendsTheRunBackToTheCheckpointBefore) {
  const std::map<std::string, std::string> edits = {{"\"step\": 12", "\"step\": 90"},
                                                    {"\"taken\": 12", "\"taken\": 2"},
                                                    {"\"loss_scale\": 1.0", "\"loss_scale\": 0.25"},
                                                    {"\"files\": [", "\"file\": [], \"files\": ["},
                                                    {"width: 16", "width: 18"},
                                                    {"seed: ", "sead: "},
                                                    {"\"optimizer.safetensors\"", "\"model.safetensors\""}};
  for (const auto& [old, by] : edits) {
    write_text_file(state_file(12), replaced(state(12), old, by));
    expect_falls_back(by);
  }
}

TEST_F(CheckpointDamage, ByAFileOfAnotherCheckpointSendsTheRunBackToTheCheckpointBefore) {
  for (const char* file : {"/manifest.json", "/model.safetensors", "/optimizer.safetensors"}) {
    fs::copy_file(folder_.checkpoint(10) + file, folder_.checkpoint(12) + file, fs::copy_options::overwrite_existing);
    expect_falls_back(file);
  }
}

TEST_F(CheckpointDamage, AFolderUnderTheNameOfAnotherStepIsNotGoneOnFrom) {
  fs::rename(folder_.checkpoint(12), folder_.checkpoint(90));
  expect_falls_back("step 90");
  fs::remove_all(folder_.checkpoint(12));
  fs::copy(folder_.checkpoint(10), folder_.checkpoint(12), fs::copy_options::recursive);
  expect_falls_back("a copy");
  Recorder recorder;
  fs::rename(folder_.checkpoint(10), place_ / "step-11");
  EXPECT_EQ(error_of([&] { train(small_run(place_, "other", {"resume=" + (place_ / "step-11/")}), recorder); }),
            concat("'", place_ / "step-11/",
                   "' holds step 10, not the step of its name; give it a name without a step, or its own again"));
  fs::rename(place_ / "step-11", place_ / "best");
  train(small_run(place_, "other", {"resume=" + (place_ / "best")}), recorder);
  EXPECT_TRUE(weights_of(small_run(place_, "other")) == weights_);
}

TEST_F(CheckpointDamage, OfALaterCheckpointRemovesNoneThatIsWhole) {
  write_text_file(state_file(12), "{}");
  Recorder recorder(1);
  train(small_run(place_, "run", {"resume=auto", "checkpoint.every=1", "checkpoint.keep=1"}), recorder);
  EXPECT_EQ(recorder.losses.size(), 1u);
  EXPECT_EQ(error_of([&] { EXPECT_EQ(read_whole(folder_.checkpoint(11)).step, 11); }), "");
}

TEST_F(CheckpointDamage, InAnyByteOfItsFilesIsNoticedAndNamed) {
  std::mt19937 random(1);
  for (const char* name : {"/model.safetensors", "/optimizer.safetensors"}) {
    const std::string file = folder_.checkpoint(12) + name, whole = read_text_file(file);
    for (int i = 0; i < 100; ++i) {
      std::string text = whole;
      const std::size_t place = i < 8 ? static_cast<std::size_t>(i) : random() % whole.size();
      text[place] = static_cast<char>(text[place] ^ (1 << random() % 8));
      write_text_file(file, text);
      const std::string error = error_of([&] { read_whole(folder_.checkpoint(12)); });
      EXPECT_NE(error.find(concat("'", file, "' has changed since it was written")), std::string::npos)
          << "byte " << place << ": " << error;
    }
    write_text_file(file, whole.substr(0, whole.size() - 1));
    EXPECT_NE(error_of([&] { read_whole(folder_.checkpoint(12)); }).find("bytes instead of"), std::string::npos);
    write_text_file(file, whole);
    // A damaged head is of no use to a run, and is no checkpoint as it was all the same.
    std::string text = whole;
    text[40] ^= 1;
    write_text_file(file, text);
    expect_falls_back(name);
  }
}

}  // namespace
}  // namespace keel
