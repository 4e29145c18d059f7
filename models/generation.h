#pragma once
// Text from a decoder: one token after the other, with keys and values of those before kept.

#include <cstdint>
#include <functional>
#include <span>

#include "keel/models/causal_model.h"

namespace keel {

struct SamplingOptions {
  std::int64_t tokens = 100;
  double temperature = 1;  // 0 takes the likeliest token
  std::int64_t top_k = 0;  // 0 means all
  std::uint64_t seed = 1;
};
// Continues `prompt` (at least one token), calling on_token for each new one; returning false stops.
// Past the block length the context slides: the newer half is read again.
void generate(const CausalModel& model, std::span<const std::int64_t> prompt, const SamplingOptions& options,
              const std::function<bool(std::int64_t token)>& on_token);

}  // namespace keel
