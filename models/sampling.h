#pragma once
// Which token comes next, by a model's logits.

#include <cstdint>
#include <span>
#include <vector>

#include "keel/runtime/random.h"

namespace keel {

// Logits go through the penalty, the temperature, top_k, top_p and min_p, in this order.
struct SamplingOptions {
  std::int64_t tokens = 100;
  double temperature = 1;  // 0 takes the likeliest token
  std::int64_t top_k = 0;  // 0 means all
  std::uint64_t seed = 1;
  // The likeliest tokens that have this share of the probability together, in (0, 1] (nucleus sampling, Holtzman et al.
  // 2020, "The curious case of neural text degeneration").
  double top_p = 1;
  double min_p = 0;  // tokens less likely than this times the likeliest are left out; in [0, 1]
  // Above 0. The logit of a token that the text has, prompt included, is divided by it, or multiplied where it is
  // negative (Keskar et al. 2019, "CTRL"). 1: none.
  double repetition_penalty = 1;
  std::vector<std::int64_t> end_tokens = {};  // a text ends before the first of these
  std::uint64_t first_row = 0;                // number of the first prompt among all, for draws
};
// An Error where an option is outside of what it may be.
void check_sampling(const SamplingOptions& options);

// The number in [0, 1) that decides a row's token of a step: the same at any batch size and number of ranks.
inline float draw_of(std::uint64_t seed, std::uint64_t row, std::uint64_t step) {
  const std::uint64_t block = step / 4;
  const PhiloxWords words = philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                                    static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(row >> 32)},
                                   key_of(seed, "generate"));
  return to_uniform(words[static_cast<std::size_t>(step % 4)]);
}

// Changes the logits of `tokens`, which are different ones.
void penalize_repetition(std::span<float> logits, std::span<const std::int64_t> tokens, double penalty);

// Chooses among tokens on the host; has memory of its own, for one thread.
class TokenChooser {
 public:
  // The token at `draw` in [0, 1) among those that the options leave, the likeliest first, equal ones by their numbers.
  // Logits of which the largest is not finite, or one is not a number, are an Error.
  std::int64_t choose(std::span<const float> logits, const SamplingOptions& options, float draw);

 private:
  void order_up_to(std::size_t count);
  double weight(std::size_t place) const;

  std::span<const float> logits_ = {};
  float largest_ = 0;
  double temperature_ = 1;
  std::vector<std::int32_t> order_ = {};  // tokens; the first `ordered_` are the likeliest in order
  std::size_t ordered_ = 0;
};

}  // namespace keel
