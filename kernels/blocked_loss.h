#pragma once
// Softmax cross-entropy of logits that exist only a block of classes at a time.
//
// The classes of a row pass by in blocks, in ascending order, and a row keeps four numbers of them: a shift near its
// largest logit, the sum of exp(x - shift), the target's logit and the sum of the logits. When a block raises the
// shift, the sum is rescaled (Milakov and Gimelshein 2018). With the four numbers the gradient of any block follows
// from its logits alone, so that they need not be kept.

#include <cstdint>

#include "keel/runtime/tensor.h"

namespace keel {

struct BlockedLoss {
  static constexpr std::int64_t kNumbers = 4;  // of a row
  Tensor targets;                              // i32 or i64 (rows), dense
  Tensor state;                                // f32 (f64 for f64 logits) (rows, kNumbers)
  Tensor places;                               // optional: i64 (rows), by which errors name a row instead of its number
  std::int64_t classes = 0;
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
};
struct LogitsBlockArgs {
  BlockedLoss loss;  // of the rows of `logits` alone
  Tensor logits;     // (rows, block), dense: classes first_class, first_class + 1, ...
  std::int64_t first_class = 0;
  Tensor factor, count;  // for the gradient: scalars, f32 (f64 for f64) and i64
};
struct SettleLossArgs {
  BlockedLoss loss;
  Tensor losses, mean, count;  // as those of CrossEntropyArgs
};

namespace kernels {

// targets: i32 or i64 (rows) on the processor. The rows, ascending, whose target is not ignore_index, as i64; an Error
// names the first row whose target is neither that nor in [0, classes).
Tensor counted_rows(const Tensor& targets, std::int64_t classes, std::int64_t ignore_index);

// For logits of `dtype`; at least one class. Each block of classes is folded in next, beginning with class 0.
BlockedLoss start_blocked_loss(const Tensor& targets, std::int64_t classes, DType dtype, std::int64_t ignore_index,
                               double label_smoothing);
// logits: (n, block), dense, of rows [first_row, first_row + n) and classes [first_class, first_class + block).
void fold_logits(const BlockedLoss& loss, const Tensor& logits, std::int64_t first_row, std::int64_t first_class);

struct SettledLoss {
  Tensor loss;    // f32 scalar (f64 for f64): mean over the targets that are not ignored, 0 when there are none
  Tensor count;   // i64 scalar: how many those are
  Tensor losses;  // (rows) likewise: 0 where ignored
};
// After the last block. A target that is neither a class nor ignored is an Error that names its row (on a device: at
// its next wait).
SettledLoss settle_loss(const BlockedLoss& loss);

// The same logits again: replaces them by their gradient, (softmax - wanted) factor / count, where `wanted` is the
// target distribution; 0 in rows that are ignored and where count is 0. Rounded once.
void logits_gradient(const BlockedLoss& loss, const Tensor& logits, std::int64_t first_row, std::int64_t first_class,
                     const Tensor& factor, const Tensor& count);

}  // namespace kernels
}  // namespace keel
