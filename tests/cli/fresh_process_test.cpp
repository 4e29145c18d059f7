// Acceptance check 31: what a run has after forty steps, and what one has that goes on after twenty in a fresh process.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using nlohmann::json;
using testing::Outcome;
using testing::Sandbox;

// Of each step from the 21st on: the loss, which says which samples dropout has left what of, and what follows from it.
std::map<int, json> later_steps(const std::string& metrics) {
  std::map<int, json> steps;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    const json record = json::parse(line);
    if (record.at("step") <= 20 || !record.contains("tokens")) continue;
    json& kept = steps[record.at("step")];
    for (const char* name : {"loss", "lr", "grad_norm", "tokens", "loss_scale"})
      kept[name] = record.value(name, json());
  }
  return steps;
}

// Parameters, m and v of every rank; and all that the manifest says, apart from the configuration and its own hash.
std::map<std::string, std::string> contents_of(const Sandbox& sandbox, const std::string& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : std::filesystem::directory_iterator(sandbox / folder)) {
    const std::string name = entry.path().filename().string();
    contents[name] = sandbox.read(concat(folder, '/', name));
  }
  json manifest = json::parse(contents.at("manifest.json"));
  EXPECT_EQ(manifest["state"]["step"], 40);
  EXPECT_GT(manifest["state"]["optimizer"]["loss_scale"], 0);
  manifest["state"].erase("config");
  contents["manifest.json"].clear();
  for (const char* name : {"state", "files", "tensors", "extents"})
    contents["manifest.json"] += manifest.at(name).dump(1) + "\n";
  return contents;
}

TEST(FreshProcess, GoesOnAfterTwentyStepsToTheParametersMVLossScaleDropoutAndSamplesOfFortyInEveryStage) {
  const Sandbox sandbox;
  for (const std::string stage : {"ddp", "zero1", "zero2", "zero3"}) {
    const std::string settings = concat(
        "train text.yaml --thread-ranks 2 steps=40 checkpoint.every=20 checkpoint.keep=9 eval.every=0 "
        "model.dropout=0.1 ",
        "loss_scale.initial=1024 loss_scale.interval=7 strategy=", stage, "-fp16 run=");
    const std::string whole = "whole-" + stage, rest = "rest-" + stage;
    const Outcome first = sandbox.keel(settings + whole);
    ASSERT_EQ(first.code, 0) << first.err;
    const Outcome second = sandbox.keel(concat(settings, rest, " resume=", whole, "/checkpoints/step-00000020"));
    ASSERT_EQ(second.code, 0) << second.err;
    EXPECT_NE(second.out.find("goes on after step 20 "), std::string::npos) << second.out;

    const auto steps = later_steps(sandbox.read(whole + "/metrics.jsonl"));
    EXPECT_GT(steps.size(), 10u);
    EXPECT_NE(steps.begin()->second.at("loss_scale"), steps.rbegin()->second.at("loss_scale")) << "the scale moves";
    EXPECT_TRUE(later_steps(sandbox.read(rest + "/metrics.jsonl")) == steps) << stage;

    const auto contents = contents_of(sandbox, whole + "/checkpoints/step-00000040"),
               continued = contents_of(sandbox, rest + "/checkpoints/step-00000040");
    EXPECT_EQ(contents.size(), stage == "ddp" ? 3u : 5u);
    for (const auto& [name, bytes] : contents)
      EXPECT_TRUE(continued.contains(name) && continued.at(name) == bytes) << stage << ": " << name;
    EXPECT_EQ(continued.size(), contents.size());
  }
}

}  // namespace
}  // namespace keel::cli
