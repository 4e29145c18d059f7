#pragma once
// The transformer's parts: multi-head attention with an optional key/value cache, the feed-forward
// part, and the pre-norm block.

#include <functional>
#include <vector>

#include "keel/autograd/attention_spans.h"
#include "keel/nn/key_value_cache.h"
#include "keel/nn/layers.h"

namespace keel {

// Shape and initialisation of a block.
struct BlockOptions {
  std::int64_t width = 0;
  int heads = 1;
  int kv_heads = 0;  // 0 means heads
  bool causal = true;
  bool bias = true;
  double attention_dropout = 0;  // of the weights behind the softmax
  double dropout = 0;            // of what attention and feed-forward add to the stream
  double deviation = 0.02;       // of the weights
  double residual_scale = 1;     // factor on the deviation of the two projections into the stream
  double epsilon = 1e-5;
};

// Dropout of one call of an attention in this pass: with a key of its own in training, none otherwise. Training needs
// the batch's sample ids (Forward::sample_ids); probability in [0, 1).
AttentionDropout attention_dropout(double probability, Forward& pass);

class MultiHeadAttention : public Module {
 public:
  Linear c_attn;  // queries, keys and values in one product: (heads + 2 kv_heads) head_size
  Linear c_proj;
  double dropout;  // of the weights behind the softmax
  explicit MultiHeadAttention(const BlockOptions& options);
  // x: (batch, time, width) -> the same shape. With spans, positions see those of their span alone.
  Variable operator()(const Variable& x, Forward& pass, const AttentionSpans& spans = {}) const;
  // The same, without dropout, for x behind what the rows hold; its keys and values join layer `layer` of the cache.
  Variable operator()(const Variable& x, const CachedRows& rows, std::size_t layer) const;
  void visit(Visitor& v) override;
  int kv_heads() const { return kv_heads_; }

 private:
  int heads_, kv_heads_;
  bool causal_;
};

// Linear, GELU (tanh approximation), Linear; four times as wide inside.
class FeedForward : public Module {
 public:
  Linear c_fc, c_proj;
  explicit FeedForward(const BlockOptions& options);
  Variable operator()(const Variable& x, Forward& pass) const;
  void visit(Visitor& v) override;
};

// A residual stream whose last addition is still to be done, so that it can be fused with the next norm.
struct ResidualStream {
  Variable sum;
  Variable branch = {};  // to be added to `sum`; empty at the start
};
// norm(stream.sum + stream.branch); leaves the completed sum in the stream.
Variable advance(ResidualStream& stream, const LayerNorm& norm);
Variable advance(ResidualStream& stream, const RMSNorm& norm);
// layer(stream); with `recompute`, what the layer computes is forgotten and computed again in backward
// (keel/autograd/checkpoint.h), so that it holds copies of all that it needs besides the model and the pass.
ResidualStream pass_through(const std::function<ResidualStream(ResidualStream)>& layer, const ResidualStream& stream,
                            Forward& pass, bool recompute);

// x += attention(norm(x)); x += feed_forward(norm(x)) (pre-norm, as GPT-2 has it).
class TransformerBlock : public Module {
 public:
  LayerNorm ln_1;
  MultiHeadAttention attn;
  LayerNorm ln_2;
  FeedForward mlp;
  Dropout dropout;
  explicit TransformerBlock(const BlockOptions& options);
  ResidualStream operator()(ResidualStream stream, Forward& pass, const AttentionSpans& spans = {}) const;
  // Generation: no gradient, keys and values go to layer `layer` of the cache.
  ResidualStream operator()(ResidualStream stream, const CachedRows& rows, std::size_t layer) const;
  void visit(Visitor& v) override;
  bool is_unit() const override { return true; }
};

}  // namespace keel
