#pragma once
// The loss of a classifier's last layer without its logits: a linear layer and cross-entropy, block by block.
//
// linear() and cross_entropy() keep logits of rows x vocabulary numbers from the forward pass to the backward pass.
// Here a block of rows and classes exists at a time. The forward pass keeps four numbers of each row
// (keel/kernels/blocked_loss.h), and a copy of the rows that count where some do not; the backward pass computes the
// logits of each block again, and from them at once the gradients of hidden, weight and bias.
//
// That is a fourth product beside the three that linear() needs. It is not saved by taking gradients in the forward
// pass, since that of the weight would need memory of the weight's size until the backward pass, which alone knows the
// loss's factor and where the gradient accumulates; and it lets a sharded weight go between the passes.
//
// A block has all rows, where they are not very many, and few classes. So each row of the weight's gradient is one
// product over all rows, is added where the gradient accumulates and is rounded once; that of hidden is summed over
// blocks in fp32 (fp64 for f64) and rounded at the end.

#include <cstdint>

#include "keel/autograd/loss.h"

namespace keel {

struct LinearCrossEntropyOptions {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  // i64 (n): the rows that are looked at, each once; the others count as ignored. Worth giving on a device, where the
  // host does not know how many targets are ignored, and only what is looked at costs anything. On the processor rows
  // that are ignored cost nothing anyway.
  Tensor rows = {};
  // The most rows and classes of a block; 0: chosen by linear_cross_entropy_block().
  std::int64_t block_rows = 0, block_classes = 0;
  // On the processor, logits of at most so many bytes, all together, are kept for the backward pass. That saves
  // the fourth product, and gives the same bits. 0: none are kept. Rows in several blocks
  // are never kept.
  std::int64_t kept_bytes = 0;
};

// hidden: (..., width), weight: (vocabulary, width), bias: (vocabulary) or an empty Variable, of one dtype; targets:
// i32 or i64 (...) in [0, vocabulary) or ignore_index, else an Error that names the row (on a device: at its next
// wait). Loss and count are those of cross_entropy(linear(hidden, weight, bias), targets), up to rounding: logits are
// rounded to the dtype there and here, their gradient once here. Hidden states of rows that are not looked at may be
// NaN.
CrossEntropyLoss linear_cross_entropy(const Variable& hidden, const Variable& weight, const Variable& bias,
                                      const Tensor& targets, const LinearCrossEntropyOptions& options = {});

// Logits of so many bytes are worth keeping on a processor: what models of the catalog take for kept_bytes. All of a
// micro-batch of 2,048 tokens and 32,000 words in fp32 are within it.
inline constexpr std::int64_t kLogitsWorthKeeping = std::int64_t{256} << 20;

struct LogitsBlock {
  std::int64_t rows, classes;
};
// The most rows and classes whose logits exist at a time, for `rows` that are looked at. Workspace is at most
// block rows x block classes numbers of the dtype. Backward needs rows x width numbers in fp32 (fp64) for the gradient
// of hidden beside it; where rows are in several blocks and gradients in 16 bits, also block classes x (width + 1).
LogitsBlock linear_cross_entropy_block(std::int64_t rows, std::int64_t vocabulary, DeviceType device,
                                       const LinearCrossEntropyOptions& options = {});

}  // namespace keel
