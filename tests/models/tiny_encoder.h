#pragma once
// A small encoder of any family, and numbers for it.

#include <string_view>

#include "keel/models/encoder.h"
#include "tests/support.h"

namespace keel::testing {

inline EncoderOptions tiny_encoder(std::string_view family = "bert") {
  EncoderOptions options;
  options.family = &encoder_family(family);
  options.vocabulary = 61;
  options.block = 16;
  options.layers = 2;
  options.heads = 4;
  options.width = 32;
  options.hidden = 48;
  options.token_types = options.family->keys.token_types.empty() ? 0 : 2;
  options.padding_token = options.family->padding_token;
  return options;
}

// Numbers in [low, high) for each token.
inline Tensor token_numbers(const Context& context, const Dims& shape, std::uint64_t seed, double low = 2,
                            double high = 61) {
  std::vector<std::int64_t> numbers;
  for (const double value : uniform(product(shape), seed, low, high))
    numbers.push_back(static_cast<std::int64_t>(value));
  return from_values(context, numbers, shape);
}

}  // namespace keel::testing
