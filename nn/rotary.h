#pragma once
// Frequencies of rotary positions, and the ways in which models stretch them to longer texts.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "keel/kernels/rotary.h"

namespace keel {

enum class RotaryScaling : unsigned char { none, linear, dynamic, yarn, longrope, llama3, proportional };

// By the names of rope_parameters (rope_scaling in older files) in a model's config.json, apart from the first two.
struct RotaryOptions {
  std::int64_t head_size = 0;
  RotaryPairs pairs = RotaryPairs::halves;
  double theta = 10000;                         // rope_theta
  double partial = 1;                           // partial_rotary_factor: the share of a head's elements that is rotated
  RotaryScaling scaling = RotaryScaling::none;  // rope_type
  std::optional<double> factor = {};            // yarn, longrope: else max_positions / original_positions
  std::int64_t max_positions = 0;               // max_position_embeddings
  std::int64_t original_positions = 0;          // original_max_position_embeddings; 0 means max_positions
  std::optional<double> attention_factor = {};  // yarn, longrope; else it follows from the lengths
  // yarn
  double beta_fast = 32, beta_slow = 1;
  std::optional<double> mscale = {}, mscale_all_dim = {};
  bool truncate = true;
  // longrope: one for each pair
  std::vector<double> short_factor = {}, long_factor = {};
  // llama3
  double low_freq_factor = 1, high_freq_factor = 4;
};

struct RotaryFrequencies {
  std::vector<double> angles;   // of each pair, in radians a position
  double attention_factor = 1;  // of cosines and sines, and so its square of the scores
};
// Sources: linear: Chen et al. 2023; dynamic: transformers' NTK by length; yarn: Peng et al. 2023; longrope: Ding et
// al. 2024; llama3: Llama team 2024; proportional: `partial` of the pairs turn, by frequencies of the whole head, and
// the others stand still.
//
// For texts of `length` positions: dynamic and longrope have others for long texts than for short ones. Options that do
// not fit are an Error that names the key.
RotaryFrequencies rotary_frequencies(const RotaryOptions& options, std::int64_t length);

// Positions 0 to `positions` - 1, computed in double and rounded once. The frequencies are those of texts of `length`
// positions, 0 meaning `positions`.
RotaryTable rotary_table(const Context& context, const RotaryOptions& options, std::int64_t positions,
                         std::int64_t length = 0);

// Several such tables, one below the other.
struct RotaryPart {
  std::int64_t positions = 0, length = 0;
  bool operator==(const RotaryPart&) const = default;
};
RotaryTable rotary_table(const Context& context, const RotaryOptions& options, std::span<const RotaryPart> parts);

}  // namespace keel
