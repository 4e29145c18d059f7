#pragma once
// Differentiable rotary positions, of separate heads or on the way from a packed projection into attention.

#include "keel/autograd/attention_spans.h"
#include "keel/kernels/rotary.h"

namespace keel {

struct Rotary {
  RotaryTable table;
  Tensor positions = {};   // optional i32 or i64 (time) or (1 or batch, time): where each stands
  std::int64_t first = 0;  // without them: time t stands at first + t
};

// x: (batch, heads, time, size) in any layout -> the same shape. A cache of keys takes those of new positions so.
Variable rotary(const Variable& x, const Rotary& rotary);
// RMS norm over each head with a weight (size), then the rotation: one pass.
Variable rotary_norm(const Variable& x, const Variable& weight, const Rotary& rotary, double epsilon = 1e-6);

// Norms of queries and keys over their heads, before the rotation (Qwen3, Gemma 3); weights of (head_size).
struct HeadNorms {
  Variable query = {}, key = {};  // both or neither
  double epsilon = 1e-6;
};

// attention_packed() (keel/autograd/attention_spans.h) of rotated queries and keys; qkv: (batch, time,
// (heads + 2 kv_heads) head_size). Queries and keys go rotated into one new buffer, attention reads values where they
// are, and gradients are written where they belong and turned back in place. In spans without `positions`, each span
// begins at `first`.
Variable attention_rotary(const Variable& qkv, int heads, int kv_heads, const Rotary& rotary,
                          const AttentionSpans& spans = {}, const AttentionOptions& options = {},
                          const HeadNorms& norms = {});

}  // namespace keel
