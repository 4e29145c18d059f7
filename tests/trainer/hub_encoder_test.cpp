// Encoders of Hugging Face's form that classify texts: with their head, and without it.

#include <gtest/gtest.h>

#include <filesystem>

#include "keel/data/safetensors.h"
#include "tests/support.h"
#include "tests/trainer/hub_support.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

// A run of an encoder on texts of two kinds, which moves no number.
Config kinds_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more) {
  const std::string path = place / "kinds.tsv";
  if (!std::filesystem::exists(path)) {
    std::string rows = "text\tkind\n";
    for (int i = 0; i < 24; ++i) rows += concat("row ", i, '\t', i % 2 == 0 ? "even" : "odd", '\n');
    write_text_file(path, rows);
  }
  more.push_back(concat("run=", place / run));
  more.push_back(concat("data.path=", path));
  return parse_config(R"(
steps: 1
task: {type: sequence_classification}
data: {text: [text], label: [kind], tokenizer: byte, validation: 0}
batch: {global: 4, micro: 2}
optimizer: {lr: 1e-30, weight_decay: 0}
eval: {every: 0}
checkpoint: {every: 0}
threads: 1
)",
                      "kinds.yaml", more);
}

TEST(HubRun, AnEncoderComesBackAndAFileWithoutItsHeadBeginsOneAtRandom) {
  const TemporaryFolder place;
  train_by(1, kinds_run(place, "first", {"model.layers=2", "model.heads=2", "model.width=8", "model.block=16"}));
  const Config first =
      kinds_run(place, "first", {"model.layers=2", "model.heads=2", "model.width=8", "model.block=16"});
  exported(first, place / "hub");
  std::vector<NamedTensor> base;  // as a base model's file has them
  {
    // Biases that are 0 would move.
    std::vector<NamedTensor> tensors = SafetensorsFile(place / "hub/model.safetensors").views(testing::context(1));
    for (auto& [name, values] : tensors) values = uniform_tensor(testing::context(1), values.shape(), 1 + base.size());
    write_safetensors(place / "whole.safetensors", tensors, {{"format", "pt"}});
    for (const auto& [name, values] : tensors)
      if (name.starts_with("bert.") && name.find("pooler") == std::string::npos)
        base.emplace_back(name.substr(5), values);
  }
  std::filesystem::rename(place / "whole.safetensors", place / "hub/model.safetensors");
  for (const int n : {1, 3}) {
    const Config config =
        kinds_run(place, concat("whole-", n), {concat("model.from=", place / "hub"), "strategy=zero3"});
    train_by(n, config);
    exported(config, place / concat("out-", n));
    EXPECT_TRUE(tensors_of(place / concat("out-", n)) == tensors_of(place / "hub")) << n;
    const Json kept = Json::parse(read_text_file(place / concat("out-", n) + "/config.json"));
    EXPECT_EQ(kept.at("architectures").items().front().string(), "BertForSequenceClassification");
    EXPECT_EQ(kept.at("id2label").at("1").string(), "odd");
    EXPECT_FALSE(std::filesystem::exists(place / concat("out-", n) + "/generation_config.json"));
  }
  base.emplace_back("cls.predictions.bias", uniform_tensor(testing::context(1), {4}, 3));
  write_safetensors(place / "hub/model.safetensors", base, {{"format", "pt"}});
  const Config config = kinds_run(place, "headless", {concat("model.from=", place / "hub")});
  const auto told = train_by(2, config);
  EXPECT_NE(told[0]->messages.find("classifier.bias: they begin at random"), std::string::npos) << told[0]->messages;
  EXPECT_NE(told[0]->messages.find("the model has no place for cls.predictions.bias of"), std::string::npos)
      << told[0]->messages;
  exported(config, place / "out");
  const auto found = tensors_of(place / "out");
  for (const auto& [name, values] : base) {
    if (name.starts_with("cls.")) continue;
    EXPECT_TRUE(found.at(concat("bert.", name, values.shape(), values.dtype())) == doubles(values)) << name;
  }
}

}  // namespace
}  // namespace keel
