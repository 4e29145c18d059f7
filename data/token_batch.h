#pragma once
// Batches of token windows, which language models learn from.

#include <cstdint>
#include <string_view>
#include <vector>

#include "keel/data/batch.h"

namespace keel {

// Fields: i32 (rows, block) both. A label is the token after each input, or kIgnoreTarget.
inline constexpr std::string_view kInputIds = "input_ids", kLabels = "labels";
// A label that the loss leaves out.
inline constexpr std::int32_t kIgnoreTarget = -100;
// The weight: labels that the loss does not leave out.
inline constexpr std::string_view kTokenWeight = "tokens";

// `tokens`: the labels that count. Sample ids and examples are those of Batch.
Batch token_batch(Tensor input_ids, Tensor labels, Tensor sample_ids, std::int64_t tokens,
                  std::vector<std::int64_t> examples);
// Of no data set's examples.
Batch token_batch(Tensor input_ids, Tensor labels, Tensor sample_ids, std::int64_t tokens);

}  // namespace keel
