#pragma once
// Scaled dot-product attention with memory linear in the sequence length, forward and backward.

#include <cstdint>
#include <string>

#include "keel/runtime/random.h"
#include "keel/runtime/tensor.h"

namespace keel {

// Weights that are dropped behind the softmax. Whether one is kept depends on (key, sample, head, query position, key
// position) alone, so that batches, tiles, devices and recomputation agree (attention_keeps() below). Kept ones are
// divided by the share that is kept in the mean, which is 1 - probability to within 2^-16.
struct AttentionDropout {
  double probability = 0;  // in [0, 1)
  DropoutKey key = {};
  Tensor sample_ids = {};     // i64 (batch): global ids of the samples
  std::int64_t position = 0;  // of key 0 in its row; query i stands at position + q_offset + i
};

// An entry is kept where its 16 random bits are at least this.
constexpr std::uint32_t attention_dropout_threshold(double probability) {
  return static_cast<std::uint32_t>(probability * 0x1p16);
}
// The key of one head's random words.
KEEL_HD constexpr PhiloxKey attention_dropout_key(PhiloxKey key, std::uint32_t head) {
  return to_key(mix64((static_cast<std::uint64_t>(key.high) << 32 | key.low) + head));
}
// The words that decide keys 8 block ... 8 block + 7 of a query: key 8 block + n by bits 16 (n % 2) and up of word n
// / 2.
KEEL_HD constexpr PhiloxWords attention_dropout_words(PhiloxKey head_key, std::uint64_t sample, std::uint32_t query,
                                                      std::uint32_t block) {
  return philox({block, query, static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32)}, head_key);
}
// What kernels compute by blocks, for one weight: for tests and rare cases.
KEEL_HD constexpr bool attention_keeps(PhiloxKey head_key, std::uint64_t sample, std::uint32_t query, std::uint32_t key,
                                       std::uint32_t threshold) {
  const PhiloxWords words = attention_dropout_words(head_key, sample, query, key / 8);
  return (words[key % 8 / 2] >> 16 * (key % 2) & 0xffff) >= threshold;
}

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
  Tensor starts = {};       // optional i64 (batch): keys before it are padding
  double scale = 0;         // 0 means 1 / sqrt(head_size)
  std::int64_t window = 0;  // not 0: query i sees keys nearer than this, |i + q_offset - j| < window, alone
  // Added to the scaled scores; (1 or batch, 1 or heads, 1 or queries, keys), of q's dtype or f32 (f64 for f64);
  // -infinity hides a key.
  Tensor bias = {};
  AttentionDropout dropout = {};
};

struct AttentionBackwardArgs {
  AttentionArgs forward;          // q, k, v, out, lse and the options of the forward call
  Tensor grad_out;                // shaped like out
  Tensor grad_q, grad_k, grad_v;  // shaped like q, k, v; any strides with a dense last dimension
  bool needs_grad_bias = false;
  Tensor grad_bias =
      {};  // where it is needed: dense, f32 (f64 for f64), shaped like bias, sums over what it is one for
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
