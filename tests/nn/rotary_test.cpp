// Tables of rotary positions against transformers' (tests/golden/generate_rotary.py), and heads that they turn.

#include "keel/nn/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using nlohmann::json;
using testing::doubles;
using testing::error_of;
using testing::relative_error;
using testing::tensor_of;

json golden_rotary() {
  std::ifstream file(KEEL_SOURCE_DIR "/tests/golden/rotary.json");
  return json::parse(file);
}

RotaryOptions options_of(const json& entry) {
  const std::map<std::string, RotaryScaling> types = {{"default", RotaryScaling::none},
                                                      {"linear", RotaryScaling::linear},
                                                      {"dynamic", RotaryScaling::dynamic},
                                                      {"yarn", RotaryScaling::yarn},
                                                      {"longrope", RotaryScaling::longrope},
                                                      {"llama3", RotaryScaling::llama3},
                                                      {"proportional", RotaryScaling::proportional}};
  const json& given = entry.at("rope_parameters");
  RotaryOptions options;
  options.head_size = entry.at("head_dim");
  options.max_positions = entry.at("max_position_embeddings");
  options.scaling = types.at(given.at("rope_type").get<std::string>());
  options.theta = given.at("rope_theta");
  options.partial = given.value("partial_rotary_factor", 1.0);
  options.original_positions = given.value("original_max_position_embeddings", 0);
  if (given.contains("factor") && !given["factor"].is_null()) options.factor = given["factor"].get<double>();
  if (given.contains("attention_factor")) options.attention_factor = given["attention_factor"].get<double>();
  options.beta_fast = given.value("beta_fast", 32.0);
  options.beta_slow = given.value("beta_slow", 1.0);
  if (given.contains("mscale")) options.mscale = given["mscale"].get<double>();
  if (given.contains("mscale_all_dim")) options.mscale_all_dim = given["mscale_all_dim"].get<double>();
  options.truncate = given.value("truncate", true);
  options.short_factor = given.value("short_factor", std::vector<double>{});
  options.long_factor = given.value("long_factor", std::vector<double>{});
  options.low_freq_factor = given.value("low_freq_factor", 1.0);
  options.high_freq_factor = given.value("high_freq_factor", 4.0);
  return options;
}

TEST(RotaryTables, AreThoseOfTransformersForEveryScaling) {
  const Context context = testing::context(1);
  const json golden = golden_rotary();
  ASSERT_GE(golden.at("tables").size(), 17U);
  for (const auto& [name, entry] : golden.at("tables").items()) {
    SCOPED_TRACE(name);
    const RotaryOptions options = options_of(entry);
    const std::int64_t length = entry.at("length");
    const RotaryFrequencies found = rotary_frequencies(options, length);
    const auto angles = entry.at("angles").get<std::vector<double>>();
    ASSERT_EQ(found.angles.size(), angles.size());
    for (std::size_t p = 0; p < angles.size(); ++p) EXPECT_NEAR(found.angles[p], angles[p], 2e-6 * angles[p]) << p;
    EXPECT_NEAR(found.attention_factor, entry.at("attention_factor").get<double>(), 1e-12);

    const RotaryTable table = rotary_table(context, options, 60, length);
    const auto positions = entry.at("positions").get<std::vector<std::int64_t>>();
    for (const auto& [part, key] : {std::pair{table.cosines, "cosines"}, std::pair{table.sines, "sines"}}) {
      const auto expected = entry.at(key).get<std::vector<double>>();
      for (std::size_t i = 0; i < positions.size(); ++i) {
        const std::vector<double> row = doubles(part.select(0, positions[i]));
        for (std::size_t p = 0; p < row.size(); ++p)
          EXPECT_NEAR(row[p], expected[i * row.size() + p], 1e-5) << key << ' ' << positions[i] << ' ' << p;
      }
    }
  }
}

TEST(RotaryTables, TurnHeadsAsLlamaPhiAndGptJDo) {
  const Context context = testing::context(1);
  const json golden = golden_rotary().at("rotations");
  const Tensor x = tensor_of(context, golden.at("x").get<std::vector<double>>(), {1, 2, 3, 8});
  const Tensor positions = tensor_of(context, golden.at("positions").get<std::vector<double>>(), {3}, DType::i64);
  struct Turned {
    const char* key;
    RotaryOptions options;
  };
  for (const auto& [key, options] :
       {Turned{"halves", {.head_size = 8}}, Turned{"partial", {.head_size = 8, .partial = 0.5}},
        Turned{"interleaved", {.head_size = 8, .pairs = RotaryPairs::interleaved}}}) {
    RotaryArgs args;
    args.x = x;
    args.table = rotary_table(context, options, 12);
    args.positions = positions;
    EXPECT_LT(relative_error(doubles(kernels::rotary(args).out), golden.at(key).get<std::vector<double>>()), 1e-6)
        << key;
  }
}

TEST(RotaryTables, ScoresDependOnDistancesAlone) {
  const Context context = testing::context(1);
  const RotaryTable table = rotary_table(context, {.head_size = 16}, 64);
  const Tensor x = testing::uniform_tensor(context, {1, 2, 1, 16}, 1);
  const auto score = [&](std::int64_t query, std::int64_t key) {
    RotaryArgs args;
    args.x = x;
    args.table = table;
    args.first = query;
    const std::vector<double> q = doubles(kernels::rotary(args).out);
    args.first = key;
    const std::vector<double> k = doubles(kernels::rotary(args).out);
    double sum = 0;
    for (std::size_t i = 0; i < 16; ++i) sum += q[i] * k[16 + i];
    return sum;
  };
  EXPECT_NEAR(score(10, 3), score(57, 50), 1e-5);
  EXPECT_GT(std::fabs(score(10, 3) - score(10, 4)), 1e-3);
}

// The pair p turns by theta^(-2 p / size).
double plain_angle(double theta, std::size_t p, double size) {
  return std::pow(theta, -2.0 * static_cast<double>(p) / size);
}

TEST(RotaryTables, OfYarnWhoseRampHasNoWidthStepFromPlainToDividedAngles) {
  // Both betas ask for the same turns, so the ramp begins where it ends: at pair 3.5.
  const double original = 1 << 14, theta = 10000, size = 32;
  const double turns = original / (2 * std::acos(-1.0) * std::pow(theta, 2 * 3.5 / size));
  const RotaryFrequencies found = rotary_frequencies({.head_size = 32,
                                                      .theta = theta,
                                                      .scaling = RotaryScaling::yarn,
                                                      .factor = 8,
                                                      .max_positions = 1 << 14,
                                                      .beta_fast = turns,
                                                      .beta_slow = turns,
                                                      .truncate = false},
                                                     1 << 14);
  ASSERT_EQ(found.angles.size(), 16U);
  for (std::size_t p = 0; p < 16; ++p) {
    const double plain = plain_angle(theta, p, size);
    EXPECT_NEAR(found.angles[p], p < 4 ? plain : plain / 8, 1e-9 * plain) << p;
  }
  EXPECT_NEAR(found.attention_factor, 0.1 * std::log(8.0) + 1, 1e-12);
}

TEST(RotaryTables, OfYarnScaleScoresByTheRatioOfTheirMscales) {
  RotaryOptions options = {.head_size = 16, .scaling = RotaryScaling::yarn, .factor = 4, .max_positions = 64};
  const auto scaled = [&](double mscale, double all) {
    options.mscale = mscale;
    options.mscale_all_dim = all;
    return rotary_frequencies(options, 64).attention_factor;
  };
  const double whole = 0.1 * std::log(4.0) + 1;
  EXPECT_NEAR(scaled(0.5, 1), (0.05 * std::log(4.0) + 1) / whole, 1e-12);
  EXPECT_NEAR(scaled(1, 0.5), whole / (0.05 * std::log(4.0) + 1), 1e-12);
  for (const auto& [mscale, all] : {std::pair{0.0, 0.5}, {0.5, 0.0}, {0.0, 0.0}})
    EXPECT_NEAR(scaled(mscale, all), whole, 1e-12) << mscale << ' ' << all;
  options.mscale = {};
  EXPECT_NEAR(rotary_frequencies(options, 64).attention_factor, whole, 1e-12) << "of one alone there is no ratio";
  std::swap(options.mscale, options.mscale_all_dim);
  options.mscale = 0.5;
  EXPECT_NEAR(rotary_frequencies(options, 64).attention_factor, whole, 1e-12);
  for (const double shorter : {0.5, 1.0}) {
    options.factor = shorter;
    EXPECT_EQ(rotary_frequencies(options, 64).attention_factor, 1) << shorter;
  }
}

TEST(RotaryTables, OfLongropeDivideEachPairByItsFactorAndScaleByTheLogarithms) {
  RotaryOptions options = {.head_size = 6,
                           .scaling = RotaryScaling::longrope,
                           .factor = 1.5,
                           .original_positions = 32,
                           .short_factor = {2, 3, 4},
                           .long_factor = {5, 6, 7}};
  for (const auto& [length, factors] : {std::pair{32, options.short_factor}, {33, options.long_factor}}) {
    const RotaryFrequencies found = rotary_frequencies(options, length);
    for (std::size_t p = 0; p < 3; ++p)
      EXPECT_NEAR(found.angles[p], plain_angle(options.theta, p, 6) / factors[p], 1e-12) << length << ' ' << p;
    EXPECT_NEAR(found.attention_factor, std::sqrt(1 + std::log(1.5) / std::log(32.0)), 1e-12);
  }
  options.factor = 1;
  EXPECT_EQ(rotary_frequencies(options, 32).attention_factor, 1);
}

TEST(RotaryTables, TakeOptionsUpToTheirBounds) {
  const auto message = [](const RotaryOptions& options) { return error_of([&] { rotary_frequencies(options, 8); }); };
  EXPECT_EQ(message({.head_size = 8, .scaling = RotaryScaling::linear, .factor = 0.5}), "");
  EXPECT_EQ(message({.head_size = 4, .scaling = RotaryScaling::dynamic, .factor = 1, .max_positions = 1}), "");
  RotaryOptions yarn = {.head_size = 8,
                        .theta = 1.5,
                        .scaling = RotaryScaling::yarn,
                        .factor = 2,
                        .original_positions = 1,
                        .beta_fast = 0.9,
                        .beta_slow = 0.1};
  EXPECT_EQ(message(yarn), "");
  const RotaryOptions fits = yarn;
  for (double RotaryOptions::*member : {&RotaryOptions::beta_fast, &RotaryOptions::beta_slow, &RotaryOptions::theta}) {
    yarn = fits;
    yarn.*member = member == &RotaryOptions::theta ? 1 : 0;
    EXPECT_NE(message(yarn).find("beta_fast and beta_slow above 0 and rope_theta above 1"), std::string::npos);
  }
  const Context context = testing::context(1);
  EXPECT_EQ(rotary_table(context, {.head_size = 8}, 0).cosines.shape(), (Dims{0, 4}));
  EXPECT_NE(error_of([&] { rotary_table(context, {.head_size = 8}, -1); }).find("a table of -1 positions"),
            std::string::npos);
  EXPECT_NE(error_of([&] { rotary_table(context, {.head_size = 8}, 1, -1); }).find("texts of -1"), std::string::npos);
}

TEST(RotaryTables, NameTheOptionThatDoesNotFit) {
  const auto message = [](const RotaryOptions& options) { return error_of([&] { rotary_frequencies(options, 8); }); };
  EXPECT_EQ(message({.head_size = 8}), "");
  const std::pair<RotaryOptions, const char*> cases[] = {
      {{.head_size = 7}, "7 elements of a head of 7"},
      {{.head_size = 8, .theta = 0}, "rope_theta"},
      {{.head_size = 8, .partial = 1.5}, "partial_rotary_factor"},
      {{.head_size = 8, .scaling = RotaryScaling::linear}, "linear needs a factor"},
      {{.head_size = 8, .scaling = RotaryScaling::linear, .factor = 0}, "linear needs a factor"},
      {{.head_size = 8, .scaling = RotaryScaling::dynamic, .factor = 2}, "max_position_embeddings"},
      {{.head_size = 2, .scaling = RotaryScaling::dynamic, .factor = 2, .max_positions = 8}, "more than two rotated"},
      {{.head_size = 8, .scaling = RotaryScaling::yarn, .factor = 2}, "original_max_position_embeddings"},
      {{.head_size = 8, .scaling = RotaryScaling::yarn, .original_positions = 8},
       "max_position_embeddings must be given"},
      {{.head_size = 8, .scaling = RotaryScaling::llama3, .factor = 2, .max_positions = 8, .low_freq_factor = 0},
       "low_freq_factor 0 below high_freq_factor 4 and above 0"},
      {{.head_size = 8, .scaling = RotaryScaling::longrope, .factor = 2, .max_positions = 8, .short_factor = {1}},
       "short_factor and long_factor"},
      {{.head_size = 8,
        .scaling = RotaryScaling::llama3,
        .factor = 2,
        .max_positions = 8,
        .low_freq_factor = 4,
        .high_freq_factor = 4},
       "low_freq_factor"}};
  for (const auto& [options, text] : cases)
    EXPECT_NE(message(options).find(text), std::string::npos) << text << ": " << message(options);
}

}  // namespace
}  // namespace keel
