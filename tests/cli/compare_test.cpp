#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "keel/trainer/config.h"
#include "tests/cli/sandbox.h"
#include "tests/pattern.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::Sandbox;

// Acceptance check 10: the choice is the lowest point of the curve, and is written down to train with.
TEST(CompareCommand, WritesTheConfigurationWithTheShortestSteps) {
  const Sandbox sandbox;
  const Outcome outcome =
      sandbox.keel("compare addition.yaml -N 2 --threads --steps 4 --repeats 1 --buckets 1M,2M,8M --tuned tuned.yaml");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::map<double, double> steps;  // milliseconds by MiB
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);)
    if (const auto row = testing::first_match(line, R"(^([0-9]+)M +[^ ]+ .* ([0-9]+\.[0-9]+) +- +[0-9]+\.[0-9]+$)");
        !row.empty())
      steps[std::stod(row[1])] = std::stod(row[2]);
  ASSERT_EQ(steps.size(), 3u) << outcome.out;
  const auto shortest =
      std::min_element(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const Config tuned = parse_config(sandbox.read("tuned.yaml"), "tuned.yaml");
  EXPECT_EQ(steps.at(static_cast<double>(tuned.sharding.bucket) / (1 << 20)), shortest->second) << outcome.out;
  EXPECT_EQ(sandbox.keel("train tuned.yaml run=again").code, 0);
}

TEST(CompareCommand, WhatFollowsAListIsNotPartOfIt) {
  const Sandbox sandbox;
  const Outcome outcome = sandbox.keel(
      "compare text.yaml -N 2 --threads --steps 2 --repeats 1 --strategies zero1-bf16,zero3-bf16 batch.global=2 "
      "batch.micro=1");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("2 steps of 2 rows by 2 ranks")) << outcome.out;
}

}  // namespace
}  // namespace keel::cli
