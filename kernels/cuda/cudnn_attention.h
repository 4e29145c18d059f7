#pragma once
// Attention as graphs of cuDNN.

#include <compare>

#include "keel/kernels/attention.h"
#include "keel/kernels/cuda/cudnn_graph.h"

namespace keel::cuda::cudnn {

// What a plan is made for.
struct AttentionCase {
  bool backward = false;
  cudnnDataType_t type = CUDNN_DATA_BFLOAT16;
  std::int64_t batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, size = 64;
  // By batch, head, time and element.
  Extents q = {}, k = {}, v = {}, out = {}, grad_out = {}, grad_q = {}, grad_k = {}, grad_v = {};
  bool causal = false, padded = false;
  std::int64_t q_offset = 0;
  float scale = 1;

  explicit AttentionCase(const AttentionArgs& args);
  explicit AttentionCase(const AttentionBackwardArgs& args);
  AttentionCase() = default;
  friend auto operator<=>(const AttentionCase&, const AttentionCase&) = default;
};

// A plan and the numbers of its tensors; those that a plan does not have are 0.
struct AttentionPlan {
  std::unique_ptr<Plan> plan;
  Uid q = 0, k = 0, v = 0, out = 0, lse = 0, grad_out = 0, grad_q = 0, grad_k = 0, grad_v = 0;
  Uid query_lengths = 0, key_lengths = 0;  // i32 (batch), where padded
  Uid delta = 0;                           // f32 (batch, heads, queries), a workspace of the backward pass
};

// Throws an Error of kind unsupported where cuDNN has no plan.
AttentionPlan plan_attention(const AttentionCase& which, const Target& target);

}  // namespace keel::cuda::cudnn
