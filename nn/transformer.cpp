#include "keel/nn/transformer.h"

#include "keel/autograd/functions.h"
#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

int kv_heads_of(const BlockOptions& options) { return options.kv_heads == 0 ? options.heads : options.kv_heads; }

std::int64_t checked_head_size(const BlockOptions& options) {
  KEEL_CHECK(options.heads > 0 && options.width % options.heads == 0, "width ", options.width, " is not a multiple of ",
             options.heads, " heads");
  KEEL_CHECK(options.heads % kv_heads_of(options) == 0, options.heads, " heads are not a multiple of ",
             kv_heads_of(options), " key/value heads");
  return options.width / options.heads;
}

Linear into_stream(std::int64_t in, const BlockOptions& options) {
  return Linear(in, options.width, options.bias, Initializer::normal(options.deviation * options.residual_scale));
}

}  // namespace

AttentionDropout attention_dropout(double probability, Forward& pass) {
  if (!pass.training || probability == 0) return {};
  KEEL_CHECK(pass.sample_ids.defined(),
             "training with attention dropout needs the batch's sample ids (Forward::sample_ids)");
  return {.probability = probability, .key = pass.random.next(), .sample_ids = pass.sample_ids};
}

MultiHeadAttention::MultiHeadAttention(const BlockOptions& options)
    : c_attn(options.width, checked_head_size(options) * (options.heads + 2 * kv_heads_of(options)), options.bias,
             Initializer::normal(options.deviation)),
      c_proj(into_stream(options.width, options)),
      dropout(options.attention_dropout),
      heads_(options.heads),
      kv_heads_(kv_heads_of(options)),
      causal_(options.causal) {
  const std::int64_t size = checked_head_size(options), keys = size * kv_heads_;
  c_attn.parts = {{"q_proj", size * heads_}, {"k_proj", keys}, {"v_proj", keys}};
  c_attn.is_one = true;
  KEEL_CHECK(dropout >= 0 && dropout < 1, "attention dropout must be in [0, 1), got ", dropout);
}

Variable MultiHeadAttention::operator()(const Variable& x, Forward& pass, const AttentionSpans& spans) const {
  const AttentionOptions options = {.causal = causal_, .dropout = attention_dropout(dropout, pass)};
  return c_proj(attention_packed(c_attn(x, pass), heads_, kv_heads_, spans, options), pass);
}

Variable MultiHeadAttention::operator()(const Variable& x, const CachedRows& rows, std::size_t layer) const {
  const Tensor qkv = c_attn(x).value();
  return c_proj(Variable(rows.attend(unpack_qkv(qkv, heads_, kv_heads_), layer)));
}

void MultiHeadAttention::visit(Visitor& v) {
  v("c_attn", c_attn);
  v("c_proj", c_proj);
}

FeedForward::FeedForward(const BlockOptions& options)
    : c_fc(options.width, 4 * options.width, options.bias, Initializer::normal(options.deviation)),
      c_proj(into_stream(4 * options.width, options)) {}
Variable FeedForward::operator()(const Variable& x, Forward& pass) const {
  return c_proj(c_fc.forward_gelu(x, pass), pass);
}
void FeedForward::visit(Visitor& v) {
  v("c_fc", c_fc);
  v("c_proj", c_proj);
}

namespace {

template <class Norm>
Variable advance_by(NormKind kind, ResidualStream& stream, const Norm& norm, const Variable& bias) {
  if (!stream.branch.defined()) return norm(stream.sum);
  ResidualNorm next = add_norm(kind, stream.sum, stream.branch, norm.weight, bias, norm.epsilon);
  stream = {next.sum, {}};
  return next.out;
}

}  // namespace

Variable advance(ResidualStream& stream, const LayerNorm& norm) {
  return advance_by(NormKind::layer, stream, norm, norm.bias);
}
Variable advance(ResidualStream& stream, const RMSNorm& norm) { return advance_by(NormKind::rms, stream, norm, {}); }

ResidualStream pass_through(const std::function<ResidualStream(ResidualStream)>& layer, const ResidualStream& stream,
                            Forward& pass, bool recompute) {
  if (!recompute) return layer(stream);
  std::vector<Variable> inputs = {stream.sum};
  if (stream.branch.defined()) inputs.push_back(stream.branch);
  const std::vector<Variable> outputs = checkpoint(
      [layer](std::span<const Variable> in) {
        const ResidualStream out = layer({in[0], in.size() > 1 ? in[1] : Variable()});
        return std::vector<Variable>{out.sum, out.branch};
      },
      inputs, &pass.random);
  return {outputs[0], outputs[1]};
}

TransformerBlock::TransformerBlock(const BlockOptions& options)
    : ln_1(options.width, options.bias, options.epsilon),
      attn(options),
      ln_2(options.width, options.bias, options.epsilon),
      mlp(options),
      dropout(options.dropout) {}

ResidualStream TransformerBlock::operator()(ResidualStream stream, Forward& pass, const AttentionSpans& spans) const {
  const Scope scope(*this);
  stream.branch = dropout(attn(advance(stream, ln_1), pass, spans), pass);
  stream.branch = dropout(mlp(advance(stream, ln_2), pass), pass);
  return stream;
}

ResidualStream TransformerBlock::operator()(ResidualStream stream, const CachedRows& rows, std::size_t layer) const {
  const Scope scope(*this);
  Forward pass;
  stream.branch = attn(advance(stream, ln_1), rows, layer);
  stream.branch = mlp(advance(stream, ln_2), pass);
  return stream;
}

void TransformerBlock::visit(Visitor& v) {
  v("ln_1", ln_1);
  v("attn", attn);
  v("ln_2", ln_2);
  v("mlp", mlp);
}

}  // namespace keel
