#pragma once
// The GPT-2 of the golden numbers (tests/golden/README.md), small enough for every test.

#include "keel/models/gpt.h"

namespace keel::testing {

inline GptOptions tiny_gpt() {
  GptOptions options;
  options.vocabulary = 61;
  options.block = 16;
  options.layers = 2;
  options.heads = 4;
  options.width = 32;
  return options;
}

}  // namespace keel::testing
