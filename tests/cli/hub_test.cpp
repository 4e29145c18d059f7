// `keel get --format hf`, and models of Hugging Face's form that answer without a run.

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "keel/dist/checkpoint/weight_shards.h"
#include "keel/runtime/json.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class HubCommands : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    sandbox_ = new Sandbox;
    const Outcome trained = sandbox_->keel("train text.yaml run=text checkpoint.keep=5");
    ASSERT_EQ(trained.code, 0) << trained.err;
  }
  static void TearDownTestSuite() { delete sandbox_; }

  static void expect(const std::string& arguments, int code, std::string_view out, std::string_view err) {
    const Outcome outcome = sandbox_->keel(arguments);
    EXPECT_EQ(outcome.code, code) << arguments << '\n' << outcome.err;
    EXPECT_NE(outcome.out.find(out), std::string::npos) << arguments << '\n' << outcome.out;
    EXPECT_NE(outcome.err.find(err), std::string::npos) << arguments << '\n' << outcome.err;
  }
  static std::string files_in(const std::string& folder) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(*sandbox_ / folder)) names.insert(entry.path().filename().string());
    std::string text;
    for (const std::string& name : names) text += name + '\n';
    return text;
  }

  static inline Sandbox* sandbox_ = nullptr;
};

TEST_F(HubCommands, GetWritesAFolderWithWhatBelongsToTheWeights) {
  expect("get text --format hf --out whole --dtype bf16", 0, "numbers in bf16, of step 12, in 1 file\n  beside them: ",
         "note: no tokenizer is written: keel's tokenizer 'byte' has no form that transformers reads");
  EXPECT_EQ(files_in("whole"), "config.json\ngeneration_config.json\nmodel.safetensors\n");
  const Json config = Json::parse(sandbox_->read("whole/config.json"));
  EXPECT_EQ(config.at("model_type").string(), "gpt2");
  EXPECT_EQ(config.at("torch_dtype").string(), "bfloat16");
  expect("get text --format hf --out shards --max-shard 20KB --step 6", 0, " files\n", "");
  EXPECT_GT(files_of_index(*sandbox_ / concat("shards/", kShardIndex)).size(), 1u);
  expect("get text/checkpoints/step-00000006 --format hf --out by-path", 0, ", of step 6, ", "");
}

TEST_F(HubCommands, GetReplacesAFolderOfTheFormAndNothingElse) {
  expect("get text --format hf --out again", 0, "again: ", "");
  expect("get text --format hf --out again --max-shard 20KB --force", 0, " files\n", "");
  expect("get text --format hf --out again --force", 0, "in 1 file\n", "");
  EXPECT_EQ(files_in("again"), "config.json\ngeneration_config.json\nmodel.safetensors\n");
  fs::copy(*sandbox_ / "text/checkpoints/step-00000012", *sandbox_ / "alone");
  sandbox_->write("again/mine.txt", "");
  const auto before = sandbox_->contents();
  const std::pair<std::string, std::string> cases[] = {
      {"text --format hf --out again", "'again' is there already; --force replaces it"},
      {"text --format hf --out again --force", "'again' has 'mine.txt', too, and --force would remove it"},
      {"text --format hf --out text --force", ", too, and --force would remove it"},
      {"text --format hf --out corpus.txt", "--out 'corpus.txt' is a file, and --format hf writes a folder"},
      {"text --format gguf --out x", "--format is keel, hf or peft, not 'gguf'"},
      {"alone --format hf --out x", "'alone' lies in no folder of a run, which has the model's config.json"},
      {"text --format hf --out x --stack other", "none called 'other'"}};
  for (const auto& [arguments, words] : cases) expect("get " + arguments, 2, "", words);
  EXPECT_TRUE(sandbox_->contents() == before);
}

TEST_F(HubCommands, AFolderAnswersWithoutItsRun) {
  expect("get text --format hf --out model", 0, "model: ", "");
  const Outcome refused = sandbox_->keel("generate model --prompt The");
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("the folder has no tokenizer"), std::string::npos) << refused.err;
  fs::copy_file(*sandbox_ / "text/tokenizer.json", *sandbox_ / "model/tokenizer.json");
  const std::string words = " --prompt \"The quick\" --tokens 30 --seed 4";
  EXPECT_EQ(sandbox_->keel("generate model" + words).out, sandbox_->keel("generate text" + words).out);
  const Outcome there = sandbox_->keel("evaluate model data.path=corpus.txt");
  EXPECT_EQ(there.code, 0) << there.err;
  EXPECT_NE(there.out.find("validation_loss"), std::string::npos) << there.out;
  expect("evaluate model --step 6 data.path=corpus.txt", 2, "", "which has neither steps nor averages");
  expect("generate nowhere --prompt x", 2, "", "'nowhere' is not the folder of a run");
}

TEST_F(HubCommands, ARunBeginsWithAFolderAndSaysSo) {
  expect("get text --format hf --out begun", 0, "begun: ", "");
  const std::string config =
      "steps: 2\nmodel: {from: begun}\ndata: {type: text, path: corpus.txt, tokenizer: byte}\nbatch: {global: 4, "
      "micro: 2}\nthreads: "
      "1\n";
  sandbox_->write("from.yaml", config);
  expect("train from.yaml run=from-hub", 0, "the model begins with the weights in 'begun'", "");
  fs::rename(*sandbox_ / "begun/model.safetensors", *sandbox_ / "begun/pytorch_model.bin");
  expect("train from.yaml run=from-bin", 2, "", "`scripts/convert-weights begun` writes safetensors beside it");
}

}  // namespace
}  // namespace keel::cli
