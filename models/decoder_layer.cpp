#include "keel/models/decoder_layer.h"

#include "keel/autograd/functions.h"
#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

Linear projection(std::int64_t in, std::int64_t out, bool bias, const DecoderLayerOptions& options) {
  return Linear(in, out, bias, Initializer::normal(options.deviation));
}

const DecoderLayerOptions& checked_layer(const DecoderLayerOptions& options) {
  KEEL_CHECK(options.width > 0 && options.hidden > 0 && options.head_size > 0 && options.head_size % 2 == 0,
             "a decoder's layer needs a width and a hidden size of at least 1, and an even head size; got ",
             options.width, ", ", options.hidden, " and ", options.head_size);
  KEEL_CHECK(options.kv_heads > 0 && options.heads > 0 && options.heads % options.kv_heads == 0, options.heads,
             " heads are not a multiple of ", options.kv_heads, " key/value heads");
  KEEL_CHECK(options.window >= 0, "a window of ", options.window, " tokens sees none; 0 sees all");
  KEEL_CHECK(options.attention_dropout >= 0 && options.attention_dropout < 1,
             "attention dropout must be in [0, 1), got ", options.attention_dropout);
  return options;
}

}  // namespace

DecoderAttention::DecoderAttention(const DecoderLayerOptions& options)
    : qkv_proj(projection(checked_layer(options).width, options.head_size * (options.heads + 2 * options.kv_heads),
                          options.qkv_bias, options)),
      q_norm(options.head_size, options.epsilon),
      k_norm(options.head_size, options.epsilon),
      o_proj(projection(options.heads * options.head_size, options.width, options.output_bias, options)),
      heads_(options.heads),
      kv_heads_(options.kv_heads),
      head_norms_(options.head_norms),
      window_(options.window),
      dropout_(options.attention_dropout) {
  const std::int64_t keys = options.kv_heads * options.head_size;
  qkv_proj.parts = {{"q_proj", options.heads * options.head_size}, {"k_proj", keys}, {"v_proj", keys}};
}

Variable DecoderAttention::operator()(const Variable& x, Forward& pass, const Rotary& rotary,
                                      const AttentionSpans& spans) const {
  const AttentionOptions options = {.causal = true, .window = window_, .dropout = attention_dropout(dropout_, pass)};
  HeadNorms norms;
  if (head_norms_) norms = {.query = q_norm.weight, .key = k_norm.weight, .epsilon = q_norm.epsilon};
  return o_proj(attention_rotary(qkv_proj(x, pass), heads_, kv_heads_, rotary, spans, options, norms), pass);
}

Variable DecoderAttention::operator()(const Variable& x, const Rotary& rotary, const CachedRows& rows,
                                      std::size_t layer) const {
  const Tensor qkv = qkv_proj(x).value();
  PackedViews views = unpack_qkv(qkv, heads_, kv_heads_);
  const auto turned = [&](const Tensor& heads, const RMSNorm& norm) {
    return head_norms_ ? rotary_norm(Variable(heads), norm.weight, rotary, norm.epsilon)
                       : keel::rotary(Variable(heads), rotary);
  };
  views.k = turned(views.k, k_norm).value();
  views.q = turned(views.q, q_norm).value();
  return o_proj(Variable(rows.attend(views, layer, window_)));
}

void DecoderAttention::visit(Visitor& v) {
  v("qkv_proj", qkv_proj);
  if (head_norms_) {
    v("q_norm", q_norm);
    v("k_norm", k_norm);
  }
  v("o_proj", o_proj);
}

GatedFeedForward::GatedFeedForward(const DecoderLayerOptions& options)
    : gate_up_proj(projection(options.width, 2 * options.hidden, options.mlp_bias, options)),
      down_proj(projection(options.hidden, options.width, options.mlp_bias, options)),
      gate_(options.gate) {
  gate_up_proj.parts = {{"gate_proj", options.hidden}, {"up_proj", options.hidden}};
}
Variable GatedFeedForward::operator()(const Variable& x, Forward& pass) const {
  return down_proj(gated(gate_up_proj(x, pass), gate_), pass);
}
void GatedFeedForward::visit(Visitor& v) {
  v("gate_up_proj", gate_up_proj);
  v("down_proj", down_proj);
}

DecoderLayer::DecoderLayer(const DecoderLayerOptions& options)
    : input_layernorm(options.width, options.epsilon),
      self_attn(options),
      post_attention_layernorm(options.width, options.epsilon),
      mlp(options),
      dropout(options.dropout) {}

ResidualStream DecoderLayer::operator()(ResidualStream stream, Forward& pass, const Rotary& rotary,
                                        const AttentionSpans& spans) const {
  const Scope scope(*this);
  stream.branch = dropout(self_attn(advance(stream, input_layernorm), pass, rotary, spans), pass);
  stream.branch = dropout(mlp(advance(stream, post_attention_layernorm), pass), pass);
  return stream;
}

ResidualStream DecoderLayer::operator()(ResidualStream stream, const Rotary& rotary, const CachedRows& rows,
                                        std::size_t layer) const {
  const Scope scope(*this);
  Forward pass;
  stream.branch = self_attn(advance(stream, input_layernorm), rotary, rows, layer);
  stream.branch = mlp(advance(stream, post_attention_layernorm), pass);
  return stream;
}

void DecoderLayer::visit(Visitor& v) {
  v("input_layernorm", input_layernorm);
  v("self_attn", self_attn);
  v("post_attention_layernorm", post_attention_layernorm);
  v("mlp", mlp);
}

}  // namespace keel
