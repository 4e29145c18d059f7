#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/curve.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using nlohmann::json;
using testing::Outcome;
using testing::Sandbox;

const char* const kUtf8 = "export LC_ALL=C.UTF-8";

TEST(ScheduleCommand, DrawsTheCurveAndOpensNoData) {
  const Sandbox sandbox;
  const Outcome outcome =
      sandbox.keel("schedule text.yaml data.path=absent.txt 'scheduler={type: constant, warmup: 4}'", kUtf8);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* words : {"constant, 12 steps, optimizer.lr 0.003", "\u2502", "steps taken",
                            "learning rate: from 0.0006 to 0.003; the highest is 0.003 after 4 steps"})
    EXPECT_NE(outcome.out.find(words), std::string::npos) << words << "\n" << outcome.out;
  EXPECT_EQ(outcome.out.find("momentum"), std::string::npos);
  EXPECT_FALSE(sandbox.has("text"));
}

TEST(ScheduleCommand, IsPlainAsciiWithoutAUtf8LocaleOrWhereAskedTo) {
  const Sandbox sandbox;
  const Outcome plain = sandbox.keel("schedule text.yaml", "export LC_ALL=C");
  const Outcome asked = sandbox.keel("schedule text.yaml --ascii", kUtf8);
  EXPECT_EQ(plain.out, asked.out);
  EXPECT_TRUE(
      std::all_of(plain.out.begin(), plain.out.end(), [](char c) { return c == '\n' || (c >= 32 && c < 127); }));
  EXPECT_NE(plain.out.find('*'), std::string::npos);
}

TEST(ScheduleCommand, PrintsRatesAndMomentumAsNumbers) {
  const Sandbox sandbox;
  const Outcome outcome =
      sandbox.keel("schedule text.yaml --json 'scheduler={type: CyclicLR, base_lr: 1e-3, step_size_up: 4}'");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json printed = json::parse(outcome.out);
  EXPECT_EQ(printed["type"], "CyclicLR");
  ASSERT_EQ(printed["rates"].size(), 12u);
  ASSERT_EQ(printed["momentum"].size(), 12u);
  EXPECT_DOUBLE_EQ(printed["rates"][4], 3e-3);
  EXPECT_DOUBLE_EQ(printed["rates"][8], 1e-3);
  EXPECT_DOUBLE_EQ(printed["momentum"][4], 0.8);
  const json first = json::parse(sandbox.keel("schedule text.yaml --json --steps 3").out);
  EXPECT_EQ(first["rates"].size(), 3u);
  EXPECT_FALSE(first.contains("momentum"));
}

TEST(ScheduleCommand, WritesAnSvgWithAPanelForTheMomentum) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("schedule text.yaml --svg rate.svg").code, 0);
  ASSERT_EQ(sandbox.keel("schedule text.yaml --svg both.svg scheduler={type: OneCycleLR}").code, 2) << "not one word";
  ASSERT_EQ(sandbox.keel("schedule text.yaml --svg both.svg 'scheduler={type: OneCycleLR}'").code, 0);
  const auto lines = [&](const std::string& file) {
    const std::string text = sandbox.read(file);
    EXPECT_TRUE(text.starts_with("<svg xmlns=")) << text;
    EXPECT_TRUE(text.ends_with("</svg>\n")) << text;
    int count = 0;
    for (std::size_t at = text.find("<polyline"); at != std::string::npos; at = text.find("<polyline", at + 1)) ++count;
    return count;
  };
  EXPECT_EQ(lines("rate.svg"), 1);
  EXPECT_EQ(lines("both.svg"), 2);
}

TEST(ScheduleCommand, RefusesWhatTrainingWouldRefuse) {
  const Sandbox sandbox;
  const auto before = sandbox.contents();
  for (const auto& [arguments, reason] : std::vector<std::pair<std::string, std::string>>{
           {"text.yaml scheduler.type=cosin", "did you mean 'cosine'?"},
           {"text.yaml scheduler.warmup=13", "scheduler.warmup: 13 warm-up steps do not fit into 12 steps"},
           {"text.yaml 'scheduler={type: OneCycleLR}' --steps 20", "there is no rate after 13 steps; it ends after 12"},
           {"text.yaml --steps 0", "--steps"},
           {"text.yaml steps=2000000 scheduler.warmup=1", "--steps N draws the first N of them"},
           {"text.yaml --svg no/such/folder.svg", "no/such"},
           {"absent.yaml", "absent.yaml"}}) {
    const Outcome outcome = sandbox.keel("schedule " + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_NE((outcome.err + outcome.out).find(reason), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(sandbox.contents(), before);
}

TEST(ScheduleCommand, TrainingCyclesTheMomentum) {
  const Sandbox sandbox;
  const auto weights_with = [&](const std::string& run, const std::string& cycle) {
    const Outcome trained = sandbox.keel(
        concat("train text.yaml run=", run, " 'scheduler={type: OneCycleLR, cycle_momentum: ", cycle, "}'"));
    EXPECT_EQ(trained.code, 0) << trained.err;
    return sandbox.read(run + "/model.safetensors");
  };
  EXPECT_NE(weights_with("cycled", "true"), weights_with("still", "false"));
}

std::vector<double> wave(std::size_t count) {
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i)
    values.push_back(1 + std::sin(static_cast<double>(i) * 20.0 / static_cast<double>(count)));
  return values;
}

TEST(Curve, EveryColumnHasItsDots) {
  for (const std::size_t count : {1u, 2u, 71u, 72u, 73u, 100000u}) {
    const std::string text = draw_curve({"x", wave(count), 0}, CurveStyle::ascii);
    std::vector<bool> has(72, false);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin), bar = text.find('|', begin);
      for (std::size_t i = bar + 1; bar < end && i < end; ++i)
        if (text[i] == '*') has.at(i - bar - 1) = true;
      begin = end + 1;
    }
    EXPECT_EQ(std::count(has.begin(), has.end(), true), 72) << count << " values\n" << text;
  }
}

TEST(Curve, AFlatCurveIsALineAtItsHeight) {
  const std::string above = draw_curve({"x", std::vector<double>(50, 3.0), 0}, CurveStyle::ascii);
  EXPECT_NE(above.find("3 |" + std::string(72, '*')), std::string::npos) << above;
  const std::string zero = draw_curve({"x", std::vector<double>(50, 0.0), 0}, CurveStyle::ascii);
  EXPECT_NE(zero.find("|" + std::string(72, '*')), std::string::npos) << zero;
}

TEST(Curve, AnSvgStaysSmallAndKeepsItsPeak) {
  std::vector<double> values(1000000, 0.0);
  values[500001] = 7;
  const std::vector<Curve> curves = {{"a < b", values, 0}};
  const std::string text = curves_svg("title & more", curves);
  EXPECT_LT(text.size(), 60000u);
  EXPECT_NE(text.find("a &lt; b"), std::string::npos);
  EXPECT_NE(text.find("title &amp; more"), std::string::npos);
  EXPECT_NE(text.find(",70.00 "), std::string::npos) << "the peak reaches the panel's top";
}

}  // namespace
}  // namespace keel::cli
