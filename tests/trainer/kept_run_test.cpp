// What a run's folder keeps of the folders that it began with: when it stands in for them, and when it goes.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/error_of.h"
#include "tests/trainer/hub_support.h"

namespace keel {
namespace {

using namespace testing;
namespace fs = std::filesystem;

// A model with a tokenizer of another folder and adapters of a third, and runs that begin with them and stop at step 2.
class KeptOfARun : public ::testing::Test {
 protected:
  KeptOfARun() {
    published(place_);
    train_by(1, hub_run(place_, "first", {"model.from=" + place_ / "hub", "model.lora_rank=2"}));
    exported(hub_run(place_, "first", {}), place_ / "adapters", DType::f32, HubFormat::adapters);
    fs::create_directory(place_ / "tokens");
    fs::copy_file(place_ / "first/tokenizer.json", place_ / "tokens/tokenizer.json");
    write_text_file(place_ / "tokens/special_tokens_map.json", "{}");
  }

  // `more` comes last, so it wins.
  Config run(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"model.from=" + place_ / "hub",
                                    "model.lora_from=" + place_ / "adapters",
                                    "data.tokenizer=" + place_ / "tokens",
                                    "steps=3",
                                    "checkpoint.every=1",
                                    "resume=auto"};
    all.insert(all.end(), more.begin(), more.end());
    return hub_run(place_, name, all);
  }
  void remove_folders() const {
    for (const char* folder : {"hub", "tokens", "adapters"}) fs::remove_all(place_ / folder);
  }
  bool has(const char* file) const { return fs::exists(place_ / concat("mine/", file)); }

  TemporaryFolder place_;
};

TEST_F(KeptOfARun, AMisspeltNameIsAnErrorThoughTheRunKeepsAModelATokenizerAndAdapters) {
  train_by(1, run("mine"), 2);
  for (const std::string key : {"model.from", "model.lora_from", "data.tokenizer"}) {
    const std::string wrong = place_ / "misspelt";
    const std::string error = error_of([&] { train_by(1, run("mine", {concat(key, '=', wrong)})); });
    EXPECT_NE(error.find("misspelt"), std::string::npos) << key << ": " << error;
  }
}

TEST_F(KeptOfARun, AMessageTellsWhatIsGoneAndWhatStandsInItsPlace) {
  train_by(1, run("mine"), 2);
  EXPECT_EQ(train_by(1, run("mine"), 2)[0]->messages.find(" is gone"), std::string::npos);
  remove_folders();
  const std::string told = train_by(1, run("mine"))[0]->messages;
  for (const char* name : {"model.from '{}hub", "model.lora_from '{}adapters", "data.tokenizer '{}tokens"}) {
    std::string begin = name;
    begin.replace(begin.find("{}"), 2, place_ / "");
    EXPECT_NE(told.find(concat(begin, "' is gone, and what '", place_ / "mine", "' keeps of it stands in its place")),
              std::string::npos)
        << told;
  }
}

TEST_F(KeptOfARun, FilesBesideTheTokenizerOutliveItsFolder) {
  train_by(1, run("mine"), 2);
  EXPECT_TRUE(has("special_tokens_map.json"));
  remove_folders();
  train_by(1, run("mine"));
  EXPECT_TRUE(has("special_tokens_map.json"));
}

TEST_F(KeptOfARun, ARunThatBeginsAnewInAFolderLeavesNothingOfTheSessionBefore) {
  train_by(1, run("mine", {"checkpoint.every=0"}), 1);
  fs::remove_all(place_ / "mine/checkpoints");
  fs::remove(place_ / "mine/model.safetensors");
  for (const char* file : {"config.json", "adapter_config.json", "special_tokens_map.json", "tokenizer.json"})
    EXPECT_TRUE(has(file)) << file;
  train_by(1, run("mine", {"model.lora_from=none", "data.tokenizer=character"}));
  EXPECT_FALSE(has("adapter_config.json"));
  EXPECT_FALSE(has("special_tokens_map.json"));
  EXPECT_TRUE(has("tokenizer.json"));
}

// Whoever makes a folder of a model the folder of a run keeps the files that are not the run's.
TEST_F(KeptOfARun, FilesOfAFolderThatHeldNoRunStay) {
  fs::create_directory(place_ / "mine");
  write_text_file(place_ / "mine/special_tokens_map.json", "{}");
  train_by(1, hub_run(place_, "mine", {"model.from=" + place_ / "hub"}));
  EXPECT_TRUE(has("special_tokens_map.json"));
}

TEST_F(KeptOfARun, GoingOnInANewFolderWithAnotherTokenizerIsRefused) {
  train_by(1, run("mine"), 2);
  fs::create_directory(place_ / "others");
  write_text_file(place_ / "others/tokenizer.json", kPublishedTokenizer);
  const std::string error = error_of([&] {
    train_by(1, run("new", {"resume=" + place_ / "mine", "data.tokenizer=" + place_ / "others"}));
  });
  EXPECT_NE(error.find("was trained with another tokenizer.json"), std::string::npos) << error;
  EXPECT_FALSE(fs::exists(place_ / "new/checkpoints"));
}

}  // namespace
}  // namespace keel
