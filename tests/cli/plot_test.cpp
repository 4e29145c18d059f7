// `keel plot` and the drawings of several curves.

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "cli/curve.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::Sandbox;

std::size_t occurrences(const std::string& text, std::string_view word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// Two runs whose losses are known.
const Sandbox& with_runs(const Sandbox& sandbox) {
  std::string first, second;
  for (int step = 1; step <= 40; ++step) {
    first +=
        concat("{\"step\":", step, ",\"loss\":", 4.0 / step, ",\"lr\":0.001,\"grad_norm\":1.5,\"tokens_per_s\":1e4}\n");
    second += concat("{\"step\":", 2 * step, ",\"loss\":", 2.0 - 0.01 * step, ",\"lr\":0.002}\n");
  }
  second += "{\"step\":82,\"loss\":null,\"nonfinite\":{\"loss\":\"nan\"}}\n";
  second += "{\"step\":83,\"loss\":1";  // being written
  std::filesystem::create_directories(sandbox / "a");
  sandbox.write("a/metrics.jsonl", first);
  sandbox.write("b.jsonl", second);
  return sandbox;
}

TEST(PlotCommand, DrawsWhatARunHasWrittenWithItsSteps) {
  const Sandbox sandbox;
  const Outcome outcome = with_runs(sandbox).keel("plot a", "export LC_ALL=C.UTF-8");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* words : {" loss\n", " learning rate\n", " gradient norm\n", " tokens per second\n", "\u2502",
                            "           4 \u2502", "         0.1 \u2502", "a: loss from 4.0000 to 0.1000, step 40\n"})
    EXPECT_NE(outcome.out.find(words), std::string::npos) << words << outcome.out;
  EXPECT_EQ(outcome.out.find("validation"), std::string::npos) << "there is none";
  EXPECT_EQ(outcome.out.find("  * a"), std::string::npos) << "one run needs no legend";
}

TEST(PlotCommand, SeveralRunsHaveAMarkEachAndALegend) {
  const Sandbox sandbox;
  const Outcome outcome = with_runs(sandbox).keel("plot a b.jsonl --columns 60", "export LC_ALL=C");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("  * a\n  o b.jsonl\n")) << outcome.out;
  EXPECT_TRUE(
      std::all_of(outcome.out.begin(), outcome.out.end(), [](char c) { return c == '\n' || (c >= 32 && c < 127); }));
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 60u) << line;
  EXPECT_NE(outcome.out.find("b.jsonl: loss from 1.9900 to 1.6000, step 80\n"), std::string::npos)
      << "what is not finite, and half a line, are left out\n"
      << outcome.out;
  // The second run has no norms of gradients: the panel is the first one's, in its mark.
  const std::string norms = outcome.out.substr(outcome.out.find("gradient norm"), 400);
  EXPECT_NE(norms.find('*'), std::string::npos) << norms;
  EXPECT_EQ(norms.substr(0, norms.find("steps taken")).find(" o"), std::string::npos) << norms;
}

TEST(PlotCommand, WritesAPictureWithColoursDashesAndALegend) {
  const Sandbox sandbox;
  const Outcome outcome = with_runs(sandbox).keel("plot a b.jsonl --out both.svg");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "both.svg\n");
  const std::string text = sandbox.read("both.svg");
  EXPECT_TRUE(text.starts_with("<svg xmlns=") && text.ends_with("</svg>\n")) << text;
  EXPECT_EQ(occurrences(text, "<polyline"), 6u) << "two losses, two rates, a norm and a speed";
  EXPECT_EQ(occurrences(text, ">b.jsonl</text>"), 1u);
  EXPECT_EQ(occurrences(text, "stroke=\"#0072b2\" stroke-dasharray=\"\""), 5u) << "four curves and the legend";
  EXPECT_EQ(occurrences(text, "stroke=\"#d55e00\" stroke-dasharray=\"7 3\""), 3u);
}

TEST(PlotCommand, SaysWhatIsNoRun) {
  const Sandbox sandbox;
  with_runs(sandbox).write("empty.jsonl", "");
  sandbox.write("other.jsonl", "{\"step\":1,\"peak_total_bytes\":7}\n");
  for (const auto& [arguments, reason] : std::vector<std::pair<std::string, std::string>>{
           {"", "RUN"},
           {"absent", "'absent' is not the folder of a run"},
           {"empty.jsonl", "'empty.jsonl' holds no record yet"},
           {"other.jsonl", "'other.jsonl' holds no numbers that are drawn"},
           {"a a a a a a a a a", "9 runs are too many to tell apart; 8 can be drawn at once"},
           {"a --out no/such.svg", "no/such"}}) {
    const Outcome outcome = sandbox.keel("plot " + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_NE(outcome.err.find(reason), std::string::npos) << outcome.err;
  }
}

TEST(PlotCommand, DrawsTheRunOfATraining) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("train text.yaml").code, 0);
  const std::string drawn = sandbox.keel("plot runs/text").out;
  EXPECT_NE(drawn.find(" validation loss\n"), std::string::npos) << drawn;
  EXPECT_NE(drawn.find("runs/text: loss from "), std::string::npos) << drawn;
}

TEST(Curve, CurvesThatCoincideTakeTurns) {
  Panel panel{"x",
              {{.name = "x", .values = {1, 1}, .low = 0, .places = {0, 1}, .look = 0},
               {.name = "x", .values = {1, 1}, .low = 0, .places = {0, 1}, .look = 1}},
              true};
  const std::string text = draw_panel(panel, CurveStyle::ascii, {.columns = 8, .rows = 3});
  EXPECT_NE(text.find("1 |*o*o*o*o\n"), std::string::npos) << text;
}

TEST(Curve, AShorterRunEndsWhereItDoes) {
  Panel panel{"x",
              {{.name = "x", .values = {1, 1, 1, 1}, .low = 0, .places = {0, 1, 2, 3}, .look = 0},
               {.name = "x", .values = {0, 0}, .low = 0, .places = {0, 1}, .look = 1}},
              true};
  const std::string text = draw_panel(panel, CurveStyle::ascii, {.columns = 8, .rows = 3});
  EXPECT_NE(text.find("1 |********\n"), std::string::npos) << text;
  EXPECT_NE(text.find("0 |oooo\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace keel::cli
