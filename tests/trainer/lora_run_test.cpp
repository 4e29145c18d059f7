// Runs with adapters: what they train, how they go on, and both ways to and from other programs.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "keel/trainer/generate.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/run_plan.h"
#include "tests/error_of.h"
#include "tests/trainer/hub_support.h"

namespace keel {
namespace {

using namespace testing;

const std::vector<std::string> kAdapted = {"model.lora_rank=3", "model.lora_alpha=6",
                                           "model.lora_targets=[c_attn,c_fc]", "steps=3", "optimizer.lr=1e-2"};

Config adapted_run(const TemporaryFolder& place, const std::string& name, std::vector<std::string> more = {}) {
  std::vector<std::string> all = kAdapted;
  all.push_back("model.from=" + place / "hub");
  all.insert(all.end(), more.begin(), more.end());
  return hub_run(place, name, all);
}

std::map<std::string, std::vector<double>> numbers_of_run(const Config& config) {
  std::map<std::string, std::vector<double>> found;
  for (const auto& [name, values] : SafetensorsFile(RunFolder(config.run).model()).views(testing::context(1)))
    found[name] = doubles(values);
  return found;
}

std::string answer_of(const Config& config, int n, const std::string& strategy = "") {
  std::string text;
  run_ranks(n, [&](Communicator& ranks) {
    generate(
        {.run = config.run, .prompt = "line 3", .tokens = 30, .temperature = 1, .strategy = strategy},
        [&](std::string_view piece) { text += piece; }, ranks);
  });
  return text;
}

TEST(LoraRun, TrainsAdaptersAloneWithTheSameBitsInEveryStage) {
  const TemporaryFolder place;
  published(place);
  const Config still = hub_run(place, "still", {"model.from=" + place / "hub"});
  train_by(1, still);
  const std::map<std::string, std::vector<double>> before = numbers_of_run(still);
  std::string reference;
  for (const char* stage : {"ddp", "zero1", "zero2", "zero3"}) {
    const Config config = adapted_run(place, stage, {concat("strategy=", stage)});
    train_by(2, config);
    if (reference.empty()) reference = weights_of(config);
    EXPECT_TRUE(weights_of(config) == reference) << stage;
    std::size_t adapters = 0;
    for (const auto& [name, values] : numbers_of_run(config)) {
      if (const auto base = before.find(name); base != before.end()) {
        EXPECT_TRUE(values == base->second) << name;
        continue;
      }
      ++adapters;
      EXPECT_NE(name.find(".lora_"), std::string::npos);
      EXPECT_NE(values, std::vector<double>(values.size(), 0)) << name;
    }
    EXPECT_EQ(adapters, 8u);
  }
}

// A rank adds up its micro-batches, and then ranks are added in their order: with one each that is one order.
TEST(LoraRun, HasTheSameBitsOnOneRankAndOnAsManyAsThereAreMicroBatches) {
  const TemporaryFolder place;
  published(place);
  const std::vector<std::string> settings = {"batch.micro=1", "model.lora_dropout=0.2"};
  const Config one = adapted_run(place, "one", settings), four = adapted_run(place, "four", settings);
  train_by(1, one);
  train_by(4, four);
  EXPECT_TRUE(weights_of(one) == weights_of(four));
}

TEST(LoraRun, GoesOnAsIfItHadNotStopped) {
  const TemporaryFolder place;
  published(place);
  const std::vector<std::string> settings = {"model.lora_dropout=0.2", "steps=4", "checkpoint.every=2"};
  const Config whole = adapted_run(place, "whole", settings), broken = adapted_run(place, "broken", settings);
  train_by(2, whole);
  train_by(2, broken, 2);
  std::vector<std::string> again = settings;
  again.emplace_back("resume=auto");
  again.emplace_back("strategy=zero3");
  train_by(3, adapted_run(place, "broken", again));
  const std::map<std::string, std::vector<double>> expected = numbers_of_run(whole), numbers = numbers_of_run(broken);
  ASSERT_EQ(numbers.size(), expected.size());
  for (const auto& [name, values] : expected)
    EXPECT_LT(relative_error(numbers.at(name), values), 1e-3) << name;  // three ranks add in another order
  again.back() = "model.lora_rank=2";
  EXPECT_NE(error_of([&] { train_by(1, adapted_run(place, "broken", again)); }).find("another model: lora_rank "),
            std::string::npos);
}

// Model, tokenizer and adapters are folders of others; data alone is asked for again.
TEST(LoraRun, GoesOnWithoutTheFoldersThatItBeganWith) {
  for (const bool adapted : {true, false}) {
    const TemporaryFolder place;
    published(place);
    if (adapted) {
      train_by(1, adapted_run(place, "first"));
      exported(adapted_run(place, "first"), place / "adapters", DType::f32, HubFormat::adapters);
    }
    // A tokenizer of characters is as good as any.
    train_by(1, hub_run(place, "named", {"model.from=" + place / "hub"}));
    std::filesystem::create_directory(place / "tokens");
    std::filesystem::copy_file(place / "named/tokenizer.json", place / "tokens/tokenizer.json");
    std::vector<std::string> settings = {"model.from=" + place / "hub", "data.tokenizer=" + place / "tokens", "steps=4",
                                         "checkpoint.every=2", "optimizer.lr=1e-2"};
    if (adapted) settings.push_back("model.lora_from=" + place / "adapters");
    const Config whole = hub_run(place, "whole", settings);
    train_by(2, whole);
    for (const char* name : {"broken", "beginning"}) train_by(2, hub_run(place, name, settings), 2);
    for (const char* folder : {"hub", "tokens", "adapters"})
      if (std::filesystem::exists(place / folder)) std::filesystem::remove_all(place / folder);
    settings.push_back("resume=auto");
    const Config broken = hub_run(place, "broken", settings);
    train_by(2, broken);
    EXPECT_TRUE(weights_of(broken) == weights_of(whole)) << adapted;
    settings.back() = "resume=" + place / "beginning";
    const Config other = hub_run(place, "other", settings);
    train_by(2, other);
    EXPECT_TRUE(weights_of(other) == weights_of(whole)) << adapted;
    EXPECT_EQ(answer_of(other, 1), answer_of(whole, 1));
    // A run that begins needs them.
    settings.back() = "resume=auto";
    const std::string error = error_of([&] { train_by(1, hub_run(place, "anew", settings)); });
    EXPECT_NE(error.find(concat("'", place / "hub", "'")), std::string::npos) << error;
  }
}

TEST(LoraRun, GivesPeftsFolderAndTakesItBackToTheBit) {
  const TemporaryFolder place;
  published(place);
  const Config config = adapted_run(place, "run", {"strategy=zero3"});
  train_by(2, config);
  exported(config, place / "adapters", DType::f32, HubFormat::adapters);
  const auto adapters = tensors_of(place / "adapters", kAdapterWeights);
  EXPECT_EQ(adapters.size(), 8u);
  EXPECT_EQ(adapters.count("base_model.model.transformer.h.1.mlp.c_fc.lora_B.weight(128, 3)f32"), 1u);
  const Json json = Json::parse(read_text_file(place / "adapters/adapter_config.json"));
  EXPECT_EQ(json.at("base_model_name_or_path").string(), place / "hub");
  EXPECT_EQ(json.at("task_type").string(), "CAUSAL_LM");

  for (const int n : {1, 2}) {
    const Config back = hub_run(place, concat("back-", n),
                                {"model.from=" + place / "hub", "model.lora_from=" + place / "adapters",
                                 n == 1 ? "strategy=ddp" : "strategy=zero3"});
    const auto told = train_by(n, back);
    EXPECT_NE(told[0]->messages.find("begins with the adapters in"), std::string::npos) << told[0]->messages;
    exported(back, place / concat("again-", n), DType::f32, HubFormat::adapters);
    EXPECT_TRUE(tensors_of(place / concat("again-", n), kAdapterWeights) == adapters);
    EXPECT_TRUE(numbers_of_run(back) == numbers_of_run(config));
    std::filesystem::rename(place / "adapters", place / "elsewhere");  // the run has what it needs
    EXPECT_EQ(answer_of(back, n), answer_of(config, 1));
    std::filesystem::rename(place / "elsewhere", place / "adapters");
  }
}

TEST(LoraRun, MergesIntoTheWeightsInFp32AndRoundsOnce) {
  const TemporaryFolder place;
  const std::vector<NamedTensor> base = published_weights();
  published(place, base);
  const Config config = adapted_run(place, "run", {"strategy=zero2"});
  train_by(2, config);
  const std::map<std::string, std::vector<double>> numbers = numbers_of_run(config);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::string out = place / concat("merged-", dtype);
    exported(config, out, dtype);
    std::size_t merged = 0;
    for (const auto& [name, values] : SafetensorsFile(out + "/model.safetensors").views(testing::context(1))) {
      const auto found = std::ranges::find(base, name, &NamedTensor::first);
      ASSERT_NE(found, base.end()) << name;
      std::vector<double> expected = doubles(found->second);
      const std::string layer = name.substr(12, name.rfind('.') - 12);  // behind "transformer."
      const auto a = numbers.find(layer + ".lora_A.weight"), b = numbers.find(layer + ".lora_B.weight");
      if (a != numbers.end() && name.ends_with(".weight")) {
        ++merged;
        const std::int64_t in = values.dim(0), out_rows = values.dim(1);
        for (std::int64_t i = 0; i < in; ++i)
          for (std::int64_t o = 0; o < out_rows; ++o)
            for (std::int64_t r = 0; r < 3; ++r)
              expected[static_cast<std::size_t>(i * out_rows + o)] +=
                  2 * b->second[static_cast<std::size_t>(o * 3 + r)] * a->second[static_cast<std::size_t>(r * in + i)];
      }
      EXPECT_LT(relative_error(doubles(values), expected), dtype == DType::f32 ? 1e-6 : 3e-3) << name;
    }
    EXPECT_EQ(merged, 4u);
  }
  // The merged model, which has no adapters any more, says the same.
  std::filesystem::copy_file(config.run + "/tokenizer.json", place / "merged-f32/tokenizer.json");
  const Config again = hub_run(place, "again", {"model.from=" + place / "merged-f32"});
  train_by(1, again);
  EXPECT_EQ(answer_of(again, 1), answer_of(config, 2, "zero3"));
}

TEST(LoraRun, HasTheMemoryOfCodesThatIsPlanned) {
  const TemporaryFolder place;
  published(place);
  for (const std::string strategy : {"ddp-fp32", "zero1-bf16", "zero3-fp32"})
    for (const std::string compression : {"none", "int4"}) {
      const Config config = adapted_run(place, concat(strategy, '-', compression),
                                        {"sharding.weight_code=int8", "strategy=" + strategy,
                                         "gradient_compression.type=" + compression, "eval.every=0"});
      train_by(2, config);
      const auto measured = read_measured_run(config.run);
      ASSERT_TRUE(measured.has_value());
      EXPECT_EQ(measured->buckets, plan_run(config, *make_task(config), 2).memory.buckets)
          << strategy << ", " << compression;
    }
}

TEST(LoraRun, SaysWhatIsWrong) {
  const TemporaryFolder place;
  published(place);
  const auto expect_error = [&](const std::vector<std::string>& settings, std::string_view words) {
    std::vector<std::string> all = {"model.from=" + place / "hub"};
    all.insert(all.end(), settings.begin(), settings.end());
    const std::string error = error_of([&] { train_by(1, hub_run(place, "refused", all)); });
    EXPECT_NE(error.find(words), std::string::npos) << error;
  };
  expect_error({"model.lora_rank=2", "model.lora_targets=[q_proj]"},
               "no linear layer of the model is called 'q_proj'; there are c_attn, c_fc, c_proj");
  expect_error({"model.lora_from=" + place / "nothing"}, "nothing/adapter_config.json");
  expect_error({"model.lora_from=" + place / "hub", "model.lora_rank=4"}, "model.lora_rank");
  const Config config = adapted_run(place, "run");
  train_by(1, config);
  exported(config, place / "adapters", DType::f32, HubFormat::adapters);
  Json json = Json::parse(read_text_file(place / "adapters/adapter_config.json"));
  json["r"] = 4;
  write_text_file(place / "adapters/adapter_config.json", json.dump());
  expect_error({"model.lora_from=" + place / "adapters"}, "its adapter_config.json describes; of another shape");
  json["r"] = 3;
  json["target_modules"] = Json(std::vector<std::string>{"c_attn"});
  write_text_file(place / "adapters/adapter_config.json", json.dump());
  expect_error({"model.lora_from=" + place / "adapters"},
               "unknown to the model: base_model.model.transformer.h.0.mlp.");
  const Config plain = hub_run(place, "plain", {"model.from=" + place / "hub"});
  train_by(1, plain);
  EXPECT_NE(error_of([&] { exported(plain, place / "none", DType::f32, HubFormat::adapters); }).find("has no adapters"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
