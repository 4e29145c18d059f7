#pragma once
// The layer of a Llama and its relatives: attention with rotary positions and shared key/value heads, a gated
// feed-forward part, RMS norms before both.

#include <cstdint>

#include "keel/autograd/gated.h"
#include "keel/autograd/rotary.h"
#include "keel/nn/transformer.h"

namespace keel {

struct DecoderLayerOptions {
  std::int64_t width = 0;
  std::int64_t hidden = 0;  // between the two products of the feed-forward part
  int heads = 1;
  int kv_heads = 1;            // divides heads
  std::int64_t head_size = 0;  // even; heads of them together may be wider than `width`, or less wide
  double epsilon = 1e-6;       // of every norm
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool head_norms = false;  // queries and keys are normed over their heads before they are turned (Qwen3)
  GateKind gate = GateKind::silu;
  std::int64_t window = 0;       // not 0: a token sees itself and the window - 1 before it
  double dropout = 0;            // of what each part adds to the stream
  double attention_dropout = 0;  // of the weights behind the softmax
  double deviation = 0.02;       // of the weights
};

class DecoderAttention : public Module {
 public:
  Linear qkv_proj;         // parts q_proj, k_proj, v_proj
  RMSNorm q_norm, k_norm;  // named where the options have them
  Linear o_proj;
  explicit DecoderAttention(const DecoderLayerOptions& options);
  // x: (batch, time, width) -> the same shape. With spans, positions see those of their span alone.
  Variable operator()(const Variable& x, Forward& pass, const Rotary& rotary, const AttentionSpans& spans) const;
  // For x behind what the rows hold, where `rotary` stands; turned keys, and values, join layer `layer` of the cache.
  Variable operator()(const Variable& x, const Rotary& rotary, const CachedRows& rows, std::size_t layer) const;
  void visit(Visitor& v) override;

 private:
  int heads_, kv_heads_;
  bool head_norms_;
  std::int64_t window_;
  double dropout_;
};

// down(activation(gate x) * up x) (Shazeer 2020).
class GatedFeedForward : public Module {
 public:
  Linear gate_up_proj;  // parts gate_proj, up_proj
  Linear down_proj;
  explicit GatedFeedForward(const DecoderLayerOptions& options);
  Variable operator()(const Variable& x, Forward& pass) const;
  void visit(Visitor& v) override;

 private:
  GateKind gate_;
};

// x += attention(norm(x)); x += feed_forward(norm(x)).
class DecoderLayer : public Module {
 public:
  RMSNorm input_layernorm;
  DecoderAttention self_attn;
  RMSNorm post_attention_layernorm;
  GatedFeedForward mlp;
  Dropout dropout;
  explicit DecoderLayer(const DecoderLayerOptions& options);
  ResidualStream operator()(ResidualStream stream, Forward& pass, const Rotary& rotary,
                            const AttentionSpans& spans) const;
  ResidualStream operator()(ResidualStream stream, const Rotary& rotary, const CachedRows& rows,
                            std::size_t layer) const;
  void visit(Visitor& v) override;
  bool is_unit() const override { return true; }
};

}  // namespace keel
