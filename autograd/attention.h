#pragma once
// Differentiable attention, on separate or packed queries, keys and values.

#include "keel/autograd/record.h"
#include "keel/kernels/attention.h"

namespace keel {

struct AttentionOptions {
  bool causal = false;
  std::int64_t q_offset = 0;  // position of the first query among the keys
  Tensor lengths = {};        // optional i64 (batch): keys at or past it are padding
  Tensor starts = {};         // optional i64 (batch): keys before it are padding
  double scale = 0;           // 0 means 1 / sqrt(head_size)
  std::int64_t window = 0;    // not 0: keys at this distance or farther are not seen
  AttentionDropout dropout = {};
};
// Operations forward of the pairs of a query and a key that it sees by causal, offset and window; padding counts.
// Backward is twice that (keel/autograd/flops.h).
double attention_flops(const AttentionArgs& args);
// A kernel's arguments with these options.
AttentionArgs attention_args(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options);

// q: (batch, heads, queries, head_size); k, v: (batch, kv_heads, keys, head_size); out like q.
Variable attention(const Variable& q, const Variable& k, const Variable& v, const AttentionOptions& options = {});

// The same with a bias that is added to the scaled scores, and gets a gradient: (1 or batch, 1 or heads, 1 or queries,
// keys), of q's dtype or f32 (f64 for f64). -infinity hides a key. Empty: the same as attention().
Variable attention_with_bias(const Variable& q, const Variable& k, const Variable& v, const Variable& bias,
                             const AttentionOptions& options = {});

// qkv: (batch, time, (heads + 2 kv_heads) head_size), as one projection makes them; out: (batch, time, heads
// head_size). Nothing is transposed or copied: the kernel reads and writes strided views.
Variable attention_packed(const Variable& qkv, int heads, int kv_heads, const AttentionOptions& options = {});

// The views of one head layout inside a packed tensor: (batch, heads, time, head_size).
struct PackedViews {
  Tensor q, k, v;
};
PackedViews unpack_qkv(const Tensor& qkv, int heads, int kv_heads);

}  // namespace keel
