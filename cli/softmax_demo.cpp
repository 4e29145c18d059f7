// `keel softmax-demo`: a row of attention from blocks of keys, by the steps of the kernel.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>

#include "commands.h"
#include "common_options.h"
#include "keel/kernels/running_softmax.h"
#include "keel/runtime/error.h"

namespace keel::cli {
namespace {

constexpr int kMostScores = 64;  // that can be read

constexpr const char* kSoftmaxFooter = R"(
Examples:
  keel softmax-demo 1 3 2 5                         two blocks of two keys
  keel softmax-demo 1,3,-2,5 --block 1 --values 10,20,30,40

m is the largest score so far, l the sum of e^(score - m), and o the sum of e^(score - m) * value. That is all that a
thread keeps of a row; the result is o / l. The steps are those of keel/kernels/running_softmax.h, which the kernel
(kernels/cuda/attention.cu) takes, too. A score of -inf is a key that is hidden.)";

struct SoftmaxArguments {
  Words scores, values;
  int block = 2;
};

// Of one query: scores of keys, and a number of each key's values.
struct ScoreRow {
  std::vector<float> scores, values;
};

ScoreRow read_row(const SoftmaxArguments& arguments) {
  const std::vector<double> scores = numbers_of(arguments.scores, "SCORE"),
                            values = numbers_of(arguments.values, "--values");
  KEEL_CHECK(scores.size() <= kMostScores, "a row has at most ", kMostScores, " scores here, and there are ",
             scores.size());
  KEEL_CHECK(
      std::all_of(scores.begin(), scores.end(), [](double score) { return static_cast<float>(score) < INFINITY; }),
      "a score is a number of fp32, or -inf; one is nan or larger than all of them");
  KEEL_CHECK(std::any_of(scores.begin(), scores.end(), [](double score) { return score > -INFINITY; }),
             "every key is hidden: one score at least must be above -inf");
  KEEL_CHECK(values.empty() || values.size() == scores.size(), "--values takes a number for each of ", scores.size(),
             " scores, and there are ", values.size());
  ScoreRow row;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    row.scores.push_back(static_cast<float>(scores[i]));
    row.values.push_back(values.empty() ? 10 * static_cast<float>(i + 1) : static_cast<float>(values[i]));
  }
  return row;
}

// "1, 3"
std::string list_of(const std::vector<float>& numbers, std::size_t begin, std::size_t end) {
  std::string text;
  for (std::size_t i = begin; i < end; ++i) text += fmt::format("{}{:g}", i == begin ? "" : ", ", numbers[i]);
  return text;
}

// The keys [begin, end) change what is known of the row. Returns what changes, in words.
std::string take_block(const ScoreRow& row, std::size_t begin, std::size_t end, RunningSoftmax& softmax, float& out) {
  const RunningSoftmax before = softmax;
  const float out_before = out;
  float largest = -INFINITY, total = 0;
  for (std::size_t i = begin; i < end; ++i) largest = RunningSoftmax::Larger{}(largest, row.scores[i]);
  const RunningSoftmax::Block block = softmax.begin(largest);
  out *= block.rescale;
  std::string sum, products;
  for (std::size_t i = begin; i < end; ++i) {
    const float weight = block.weight(row.scores[i]);
    total += weight;
    out = math::fma(weight, row.values[i], out);
    sum += fmt::format("{}{:.4f}", i == begin ? "" : " + ", weight);
    products += fmt::format("{}{:.4f} * {:g}", i == begin ? "" : " + ", weight, row.values[i]);
  }
  softmax.end(block, total);

  std::string text = fmt::format("  m = {:g}, the largest score so far", softmax.largest);
  if (begin != 0) {
    text += fmt::format("; what came before counts e^({:g} - {:g}) = {:.4f} of what it did", before.largest,
                        softmax.largest, block.rescale);
    sum = fmt::format("{:.4f} * {:.4f} + {}", before.total, block.rescale, sum);
    products = fmt::format("{:.4f} * {:.4f} + {}", out_before, block.rescale, products);
  }
  return fmt::format("{}\n  l = {} = {:.4f}\n  o = {} = {:.4f}\n", text, sum, softmax.total, products, out);
}

// The plain way, in fp64.
std::string plain_softmax(const ScoreRow& row) {
  const double largest = *std::max_element(row.scores.begin(), row.scores.end());
  double total = 0, out = 0;
  for (const float score : row.scores) total += std::exp(static_cast<double>(score) - largest);
  std::string shares;
  for (std::size_t i = 0; i < row.scores.size(); ++i) {
    const double share = std::exp(static_cast<double>(row.scores[i]) - largest) / total;
    out += share * static_cast<double>(row.values[i]);
    shares += fmt::format("{}{:.4f}", i == 0 ? "" : ", ", share);
  }
  return fmt::format("all scores at once, in f64: softmax gives {}, and the result {:.4f}\n", shares, out);
}

void run(const SoftmaxArguments& arguments) {
  const ScoreRow row = read_row(arguments);
  const auto extent = static_cast<std::size_t>(arguments.block);
  RunningSoftmax softmax;
  float out = 0;
  for (std::size_t begin = 0; begin < row.scores.size(); begin += extent) {
    const std::size_t end = std::min(begin + extent, row.scores.size());
    std::cout << fmt::format("block {}: scores {}; values {}\n", begin / extent, list_of(row.scores, begin, end),
                             list_of(row.values, begin, end))
              << take_block(row, begin, end, softmax, out);
  }
  std::cout << fmt::format("\nresult: o / l = {:.4f} / {:.4f} = {:.4f}; kept for backward: m + log l = {:.4f}\n", out,
                           softmax.total, out / softmax.total, softmax.log_sum_exp())
            << plain_softmax(row) << std::flush;
}

}  // namespace

Command softmax_demo_command() {
  const auto arguments = std::make_shared<SoftmaxArguments>();
  return {.name = "softmax-demo",
          .help = "See a row of attention computed from blocks of its scores, as the kernel does.",
          .positionals = {{"SCORE", "", &arguments->scores, "Scores of one query, one of each key.", kRequired}},
          .options = {{"--block", "KEYS", {&arguments->block, 1, kMostScores}, "Keys of a block."},
                      {"--values", "NUMBER", &arguments->values,
                       "A number of each key's values; without it 10, 20, 30 and so on."}},
          .footer = kSoftmaxFooter,
          .run = [arguments](const Call&) {
            run(*arguments);
            return 0;
          }};
}

}  // namespace keel::cli
