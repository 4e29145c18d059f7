#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "keel/trainer/config.h"
#include "keel/trainer/curve_file.h"
#include "keel/trainer/curve_means.h"
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

TEST(CompareCommand, CountsWhatGroupsTellEachOtherAndSaysWhereNoWindowIsLongEnough) {
  const Sandbox sandbox;
  const std::string what =
      "compare text.yaml -N 2 --threads --steps 6 --repeats 1 --strategies ddp-fp32 outer.type=diloco outer.every=";
  for (const auto& [every, is_told] : {std::pair(2, false), {5, false}, {6, true}}) {
    const Outcome outcome = sandbox.keel(what + std::to_string(every));
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    EXPECT_EQ(outcome.out.find("\nBytes leave out what groups of ranks tell each other every 6 steps: --steps 7 counts "
                               "it.\n") != std::string::npos,
              is_told)
        << outcome.out;
  }
}

TEST(CompareCommand, DrawsTheLossOfVariantsAgainstBytesAndSeconds) {
  const Sandbox sandbox;
  const Outcome outcome = sandbox.keel(
      "compare text.yaml -N 2 --threads --steps 12 --seeds 3,1 --until-loss 1000 --curves shown --columns 200 "
      "--variant 'local: outer.type=local_sgd outer.every=6' strategy=ddp-fp32 sharding.group=1");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("12 steps of 4 rows by 2 ranks, 2 seeds\n\n")) << outcome.out;
  const CurveFile file = parse_curve_file(sandbox.read("shown/curves.json"));
  ASSERT_EQ(file.curves.size(), 4u);
  const std::vector<MeanCurve> means = mean_curves(file.curves);
  EXPECT_LT(means[1].points.back().bytes, means[0].points.back().bytes);
  std::istringstream lines(outcome.out);
  std::map<std::string, std::vector<std::string>> rows;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    for (std::string word; words >> word;) rows[name].push_back(word);
  }
  for (const MeanCurve& mean : means) {
    const std::vector<std::string>& row = rows[mean.variant];
    ASSERT_EQ(row.size(), 9u) << outcome.out;
    EXPECT_EQ(row[0], fmt::format("{:.4f}", mean.final_loss.mean));
    EXPECT_EQ(row[1], fmt::format("{:.4f}", mean.final_loss.deviation));
    EXPECT_EQ(row[2], fmt::format("{:.0f}", mean.points.back().bytes / 12));
    EXPECT_EQ(row[4], fmt::format("{:.4f}", mean.points.back().validation_loss.value().mean));
    EXPECT_EQ(row[6], "10") << "the first mean of ten steps";
    EXPECT_EQ(row[7], fmt::format("{:.0f}", mean.points[9].bytes));
  }
  for (const char* name : {"shown/loss-bytes.svg", "shown/loss-seconds.svg"}) {
    const std::string picture = sandbox.read(name);
    EXPECT_TRUE(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n")) << picture;
    for (const auto& [word, count] : {std::pair("<polyline", 4), {"<polygon", 4}, {">local</text>", 1}}) {
      int found = 0;
      for (std::size_t at = picture.find(word); at != std::string::npos; at = picture.find(word, at + 1)) ++found;
      EXPECT_EQ(found, count) << word << " in " << name;
    }
  }
  EXPECT_EQ(file.curves[0].seed, 1u);
  EXPECT_EQ(file.curves[3].seed, 3u);
}

// A slower network between groups changes no number.
TEST(CompareCommand, TrainsOnANetworkThatIsSlowerBetweenGroups) {
  const Sandbox sandbox;
  const std::string what =
      "compare text.yaml -N 4 --threads --steps 4 --variant 'local: outer.type=local_sgd outer.every=2' "
      "strategy=ddp-fp32 batch.global=4 batch.micro=1 sharding.group=2 --curves ";
  const Outcome direct = sandbox.keel(what + "direct"),
                slow = sandbox.keel(what + "slow --outer-delay 300 --outer-bandwidth 50M --delay 20");
  ASSERT_EQ(direct.code, 0) << direct.err;
  ASSERT_EQ(slow.code, 0) << slow.err;
  EXPECT_NE(slow.out.find("groups of 2; between them every message takes 300 us and its bytes at 50M a second, at "
                          "least; inside every message takes 20 us, at least"),
            std::string::npos)
      << slow.out;
  const CurveFile there = parse_curve_file(sandbox.read("slow/curves.json")),
                  here = parse_curve_file(sandbox.read("direct/curves.json"));
  EXPECT_EQ(there.network.group, 2);
  EXPECT_EQ(here.network.group, 0);
  ASSERT_EQ(there.curves.size(), here.curves.size());
  for (std::size_t i = 0; i < here.curves.size(); ++i)
    for (std::size_t step = 0; step < here.curves[i].points.size(); ++step) {
      EXPECT_EQ(there.curves[i].points[step].loss, here.curves[i].points[step].loss);
      EXPECT_EQ(there.curves[i].points[step].bytes, here.curves[i].points[step].bytes);
    }
  EXPECT_NE(sandbox.keel("compare text.yaml -N 2 --threads --outer-bandwidth 0")
                .err.find("--outer-bandwidth needs a size above 0"),
            std::string::npos);
}

TEST(CompareCommand, SaysWhereALossIsNotReached) {
  const Sandbox sandbox;
  const Outcome outcome = sandbox.keel("compare addition.yaml -N 1 --steps 2 --until-loss 0.001 --columns 200");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("not reached"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("below 0.001"), std::string::npos) << outcome.out;
}

// The default loss scale needs more steps to fall than these trainings have.
TEST(CompareCommand, CallsNoWeightsEqualThatNoStepHasChanged) {
  const Sandbox sandbox;
  const std::string call = "compare addition.yaml -N 2 --threads --steps 3 --columns 200 ";
  const char* const why = ": every step of this run was skipped, and nothing learnt: the gradient of ";
  const Outcome none =
      sandbox.keel(call + "--repeats 1 --strategies ddp-fp16,zero2-fp16 loss_scale.initial=1e30 --tuned tuned.yaml");
  EXPECT_EQ(none.code, 1) << none.out << none.err;
  for (const char* name : {"\nddp-fp16", "\nzero2-fp16"})
    EXPECT_NE(none.out.find(std::string(name) + why), std::string::npos) << none.out;
  EXPECT_NE(none.out.find("a smaller loss_scale.initial"), std::string::npos) << none.out;
  EXPECT_NE(none.out.find("\nNo run took a step: there are no weights to compare.\n"), std::string::npos) << none.out;
  EXPECT_NE(none.out.find("tuned.yaml is not written: no run took a step"), std::string::npos) << none.out;
  EXPECT_EQ(none.out.find("equal to the bit"), std::string::npos) << none.out;
  const Outcome one = sandbox.keel(call + "--repeats 1 --strategies ddp-fp16,ddp-fp32 loss_scale.initial=1e30");
  EXPECT_EQ(one.code, 1) << one.out << one.err;
  EXPECT_NE(one.out.find("\nddp-fp16" + std::string(why)), std::string::npos) << one.out;
  EXPECT_NE(one.out.find("\nOne run alone took steps: there is nothing to compare its weights with.\n"),
            std::string::npos)
      << one.out;
  const Outcome curves = sandbox.keel(call + "--variant 'high: strategy=ddp-fp16 loss_scale.initial=1e30'");
  EXPECT_EQ(curves.code, 1) << curves.out << curves.err;
  EXPECT_NE(curves.out.find("\nhigh" + std::string(why)), std::string::npos) << curves.out;
  EXPECT_EQ(curves.out.find("plain" + std::string(why)), std::string::npos) << curves.out;
}

TEST(CompareCommand, SaysWhatIsNoVariantOrSeed) {
  const Sandbox sandbox;
  sandbox.write("file", "");
  for (const auto& [arguments, reason] : std::vector<std::pair<std::string, std::string>>{
           {"--variant 'outer.type=diloco'", "a variant is written as 'NAME: KEY=VALUE KEY=VALUE'"},
           {"--variant 'a:'", "variant 'a' changes nothing"},
           {"--variant 'a: clip=1' --variant 'a: clip=2'", "two variants are called 'a'"},
           {"--variant 'a: clipp=1'", "clipp"},
           {"--seeds 1,1", "--seeds has 1 twice"},
           {"--seeds one", "--seeds"},
           {"--seeds 1 --tuned t.yaml", "--tuned"},
           {"--curves file", "cannot make folder 'file'"},
           {"--curves shown --buckets 1M,2M,3M,4M,5M,6M,7M,8M,9M", "9 variants are too many"}}) {
    const Outcome outcome = sandbox.keel("compare addition.yaml -N 1 --steps 2 " + arguments);
    EXPECT_NE(outcome.code, 0) << arguments;
    EXPECT_NE(outcome.err.find(reason), std::string::npos) << arguments << '\n' << outcome.err;
  }
}

}  // namespace
}  // namespace keel::cli
