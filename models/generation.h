#pragma once
// Text from a decoder: one token after the other, with keys and values of those before kept.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "keel/models/causal_model.h"
#include "keel/models/sampling.h"

namespace keel {

// Continues `prompt` (at least one token), calling on_token for each new one; returning false stops.
// Past the block length the context slides: the newer half is read again.
void generate(const CausalModel& model, std::span<const std::int64_t> prompt, const SamplingOptions& options,
              const std::function<bool(std::int64_t token)>& on_token);

// The same of several prompts at once: each row has the tokens that it has alone, to the bit with keel's own kernels,
// where prompt i is row first_row + i. Rows of the same length are read in one pass; from then on a pass reads a token
// of each row that goes on. on_token hears of one token of each row, in their order, before the next of any; returning
// false ends the row.
void generate_batch(const CausalModel& model, std::span<const std::vector<std::int64_t>> prompts,
                    const SamplingOptions& options,
                    const std::function<bool(std::size_t prompt, std::int64_t token)>& on_token);

}  // namespace keel
