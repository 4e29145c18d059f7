#pragma once
// Softmax cross-entropy in one pass over the logits.

#include <cstdint>

#include "keel/runtime/tensor.h"

namespace keel {

struct CrossEntropyArgs {
  Tensor logits;   // (rows, classes), dense
  Tensor targets;  // i32 or i64 (rows)
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  Tensor losses;       // f32 (f64 for f64 logits) (rows): 0 where ignored
  Tensor loss;         // likewise, scalar: their mean over the targets that count, 0 when none does
  Tensor count;        // i64 scalar: how many targets count
  Tensor grad_logits;  // optional: d(sum of losses) / d(logits); may be `logits` itself
};

namespace kernels {

struct CrossEntropyResult {
  Tensor loss;         // f32 scalar (f64 for f64): mean over the targets that are not ignored
  Tensor count;        // i64 scalar: how many those are; 0 gives a loss of 0
  Tensor losses;       // (rows) likewise: 0 where ignored
  Tensor grad_logits;  // defined when asked for: the gradient of the sum of losses, which is count times that of `loss`
};
enum class LogitsGradient : unsigned char { none, fresh, over_logits };

// logits: (rows, classes); targets: (rows) in [0, classes) or equal to ignore_index, else an Error that
// names the row (on a device: at its next wait). With label smoothing e the target distribution is (1 - e) one-hot + e
// uniform (Szegedy et al. 2016), as PyTorch has it.
CrossEntropyResult cross_entropy(const Tensor& logits, const Tensor& targets, std::int64_t ignore_index = -100,
                                 double label_smoothing = 0, LogitsGradient gradient = LogitsGradient::none);

}  // namespace kernels
}  // namespace keel
