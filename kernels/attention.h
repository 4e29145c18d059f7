#pragma once
// Scaled dot-product attention with memory linear in the sequence length, forward and backward.

#include <cstdint>
#include <string>

#include "keel/runtime/tensor.h"

namespace keel {

// out = softmax(scale q k^T + mask) v for each head (Vaswani et al. 2017), block by block as in
// FlashAttention-2 (Dao 2023). Query head h uses key/value head h / (heads / kv_heads).
// An entry refuses by name what it does not do.
struct AttentionArgs {
  Tensor q;             // (batch, heads, queries, head_size); copied unless its last dimension is dense
  Tensor k, v;          // (batch, kv_heads, keys, head_size), likewise
  Tensor out;           // like q; any strides with a dense last dimension (e.g. a view of (B, T, H, D))
  Tensor lse;           // f32 (f64 for f64) (batch, heads, queries): log of the sum of exponentials; optional
  bool causal = false;  // query i sees keys j <= i + q_offset
  std::int64_t q_offset = 0;
  Tensor lengths = {};      // optional i64 (batch): keys at or past it are padding
  double scale = 0;         // 0 means 1 / sqrt(head_size)
  Tensor bias = {};         // reserved; refused when defined
  std::int64_t window = 0;  // reserved; refused when not 0
  double dropout = 0;       // reserved; refused when not 0
};

struct AttentionBackwardArgs {
  AttentionArgs forward;          // q, k, v, out, lse and the options of the forward call
  Tensor grad_out;                // shaped like out
  Tensor grad_q, grad_k, grad_v;  // shaped like q, k, v; any strides with a dense last dimension
};

namespace kernels {

// Fills args.out and args.lse where they are undefined (dense) and returns them inside args.
// A query without any visible key gives zeros (and lse = -inf).
AttentionArgs attention(AttentionArgs args);
// Fills undefined gradients (dense) and returns them inside args.
AttentionBackwardArgs attention_backward(AttentionBackwardArgs args);

// What computes this and why, in a line: "cuDNN 9.19.0", or "keel" and a reason where the kernels are keel's own. The
// arguments are as the functions above take them; the answer may change with the memory that is free.
std::string attention_backend(AttentionArgs args);
std::string attention_backend(AttentionBackwardArgs args);

}  // namespace kernels
}  // namespace keel
