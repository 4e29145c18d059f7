#include "keel/nn/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

// theta^(-2 p / size) for pairs p.
std::vector<double> plain_angles(double theta, std::int64_t size, std::int64_t pairs) {
  std::vector<double> angles;
  for (std::int64_t p = 0; p < pairs; ++p)
    angles.push_back(std::pow(theta, -2.0 * static_cast<double>(p) / static_cast<double>(size)));
  return angles;
}

std::int64_t original_positions(const RotaryOptions& options) {
  const std::int64_t original = options.original_positions != 0 ? options.original_positions : options.max_positions;
  KEEL_CHECK(original > 0, "rotary positions: this rope_type needs original_max_position_embeddings");
  return original;
}

double given_factor(const RotaryOptions& options, const char* type) {
  KEEL_CHECK(options.factor && *options.factor > 0, "rotary positions: rope_type ", type, " needs a factor above 0");
  return *options.factor;
}

// yarn and longrope: by how much texts become longer.
double factor_of_lengths(const RotaryOptions& options) {
  if (options.factor) return given_factor(options, "yarn or longrope");
  KEEL_CHECK(options.max_positions > 0, "rotary positions: without a factor, max_position_embeddings must be given");
  return static_cast<double>(options.max_positions) / static_cast<double>(original_positions(options));
}

std::vector<double> dynamic_angles(const RotaryOptions& options, std::int64_t rotated, std::int64_t length) {
  const double factor = given_factor(options, "dynamic");
  KEEL_CHECK(options.max_positions > 0 && rotated > 2,
             "rotary positions: rope_type dynamic needs max_position_embeddings and more than two rotated elements");
  const double stretch =
      static_cast<double>(std::max(length, options.max_positions)) / static_cast<double>(options.max_positions);
  const auto size = static_cast<double>(rotated);
  const double theta = options.theta * std::pow(factor * stretch - (factor - 1), size / (size - 2));
  return plain_angles(theta, rotated, rotated / 2);
}

// Pairs that turn often keep their frequency, those that turn seldom get it divided by the factor; between them a ramp.
RotaryFrequencies yarn(const RotaryOptions& options, std::int64_t rotated) {
  const double factor = factor_of_lengths(options);
  const auto original = static_cast<double>(original_positions(options)), size = static_cast<double>(rotated);
  KEEL_CHECK(options.beta_fast > 0 && options.beta_slow > 0 && options.theta > 1,
             "rotary positions: rope_type yarn needs beta_fast and beta_slow above 0 and rope_theta above 1");
  // The pair that turns so many times in the original length.
  const auto pair_of = [&](double turns) {
    return size * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(options.theta));
  };
  double low = pair_of(options.beta_fast), high = pair_of(options.beta_slow);
  if (options.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, size - 1);
  if (low == high) high += 0.001;
  RotaryFrequencies result{plain_angles(options.theta, rotated, rotated / 2)};
  for (std::size_t p = 0; p < result.angles.size(); ++p) {
    const double ramp = std::clamp((static_cast<double>(p) - low) / (high - low), 0.0, 1.0);
    result.angles[p] *= ramp / factor + (1 - ramp);
  }
  const auto scale = [&](double weight) { return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1; };
  const double mscale = options.mscale.value_or(0), all = options.mscale_all_dim.value_or(0);
  const double inferred = mscale != 0 && all != 0 ? scale(mscale) / scale(all) : scale(1);
  result.attention_factor = options.attention_factor.value_or(inferred);
  return result;
}

RotaryFrequencies longrope(const RotaryOptions& options, std::int64_t rotated, std::int64_t length) {
  const std::int64_t original = original_positions(options);
  const double factor = factor_of_lengths(options);
  RotaryFrequencies result{plain_angles(options.theta, rotated, rotated / 2)};
  const std::vector<double>& factors = length > original ? options.long_factor : options.short_factor;
  for (const auto* each : {&options.short_factor, &options.long_factor})
    KEEL_CHECK(
        each->size() == result.angles.size() && std::all_of(each->begin(), each->end(), [](double f) { return f > 0; }),
        "rotary positions: short_factor and long_factor need a number above 0 for each of ", result.angles.size(),
        " pairs, got ", each->size());
  for (std::size_t p = 0; p < factors.size(); ++p) result.angles[p] /= factors[p];
  const double inferred = factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original)));
  result.attention_factor = options.attention_factor.value_or(inferred);
  return result;
}

// Waves that are long beside the original length are stretched by the factor, short ones are not, and between them a
// ramp in their number.
std::vector<double> llama3_angles(const RotaryOptions& options, std::int64_t rotated) {
  const double factor = given_factor(options, "llama3");
  const double low = options.low_freq_factor, high = options.high_freq_factor;
  KEEL_CHECK(0 < low && low < high, "rotary positions: rope_type llama3 needs low_freq_factor ", low,
             " below high_freq_factor ", high, " and above 0");
  const auto original = static_cast<double>(original_positions(options));
  std::vector<double> angles = plain_angles(options.theta, rotated, rotated / 2);
  for (double& angle : angles) {
    const double waves = original * angle / (2 * std::numbers::pi);  // in the original length
    const double ramp = std::clamp((waves - low) / (high - low), 0.0, 1.0);
    angle *= ramp + (1 - ramp) / factor;
  }
  return angles;
}

std::vector<double> proportional_angles(const RotaryOptions& options) {
  const auto turning = static_cast<std::int64_t>(options.partial * static_cast<double>(options.head_size) / 2);
  std::vector<double> angles = plain_angles(options.theta, options.head_size, turning);
  if (options.factor)
    for (double& angle : angles) angle /= given_factor(options, "proportional");
  angles.resize(static_cast<std::size_t>(options.head_size / 2), 0.0);
  return angles;
}

}  // namespace

RotaryFrequencies rotary_frequencies(const RotaryOptions& options, std::int64_t length) {
  KEEL_CHECK(options.theta > 0, "rotary positions: rope_theta must be above 0, got ", options.theta);
  KEEL_CHECK(options.partial > 0 && options.partial <= 1,
             "rotary positions: partial_rotary_factor must be in (0, 1], got ", options.partial);
  const bool whole = options.scaling == RotaryScaling::proportional;
  const auto rotated =
      whole ? options.head_size : static_cast<std::int64_t>(static_cast<double>(options.head_size) * options.partial);
  KEEL_CHECK(rotated > 0 && rotated % 2 == 0, "rotary positions: ", rotated, " elements of a head of ",
             options.head_size, " are to be rotated; they must be pairs");
  switch (options.scaling) {
    case RotaryScaling::none: return {plain_angles(options.theta, rotated, rotated / 2)};
    case RotaryScaling::linear: {
      const double factor = given_factor(options, "linear");
      RotaryFrequencies result{plain_angles(options.theta, rotated, rotated / 2)};
      for (double& angle : result.angles) angle /= factor;
      return result;
    }
    case RotaryScaling::dynamic: return {dynamic_angles(options, rotated, length)};
    case RotaryScaling::yarn: return yarn(options, rotated);
    case RotaryScaling::longrope: return longrope(options, rotated, length);
    case RotaryScaling::llama3: return {llama3_angles(options, rotated)};
    case RotaryScaling::proportional: return {proportional_angles(options)};
  }
  throw Error("rotary positions: a rope_type that is not known");
}

RotaryTable rotary_table(const Context& context, const RotaryOptions& options, std::int64_t positions,
                         std::int64_t length) {
  const RotaryPart all = {positions, length};
  return rotary_table(context, options, std::span(&all, 1));
}

RotaryTable rotary_table(const Context& context, const RotaryOptions& options, std::span<const RotaryPart> parts) {
  std::vector<float> cosines, sines;
  std::int64_t rows = 0, pairs = 0;
  for (const auto& [positions, length] : parts) {
    KEEL_CHECK(positions >= 0 && length >= 0, "rotary positions: a table of ", positions, " positions for texts of ",
               length);
    const RotaryFrequencies frequencies = rotary_frequencies(options, length == 0 ? positions : length);
    for (std::int64_t m = 0; m < positions; ++m)
      for (const double each : frequencies.angles) {
        const double angle = static_cast<double>(m) * each;
        cosines.push_back(static_cast<float>(std::cos(angle) * frequencies.attention_factor));
        sines.push_back(static_cast<float>(std::sin(angle) * frequencies.attention_factor));
      }
    rows += positions;
    pairs = std::ssize(frequencies.angles);
  }
  const Dims shape{rows, pairs};
  return {from_values(context, cosines, shape), from_values(context, sines, shape), options.pairs};
}

}  // namespace keel
