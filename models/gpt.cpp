#include "keel/models/gpt.h"

#include <cmath>

#include "keel/autograd/functions.h"
#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

BlockOptions block_options(const GptOptions& options) {
  BlockOptions block;
  block.width = options.width;
  block.heads = options.heads;
  block.bias = options.bias;
  block.dropout = options.dropout;
  block.attention_dropout = options.attention_dropout;
  block.residual_scale = 1 / std::sqrt(2.0 * options.layers);
  return block;
}

}  // namespace

Gpt::Gpt(const GptOptions& given)
    : options(given),
      wte(given.vocabulary, given.width, Initializer::normal(0.02)),
      wpe(given.block, given.width, Initializer::normal(0.02)),
      ln_f(given.width, given.bias),
      lm_head(given.width, given.vocabulary, /*with_bias=*/false) {
  lm_head.weight = wte.weight.tie();
  lm_head.is_head = true;
  KEEL_CHECK(given.vocabulary > 0 && given.block > 0 && given.layers > 0,
             "a GPT needs a vocabulary, a block and layers of at least 1");
  for (int i = 0; i < given.layers; ++i) h.emplace_back(block_options(given));
}

void Gpt::check(const Tensor& tokens, std::int64_t first_position) const {
  KEEL_CHECK(tokens.rank() == 2, "a GPT reads tokens (batch, time), got ", tokens);
  const std::int64_t end = first_position + tokens.dim(1);
  KEEL_CHECK(end <= options.block, "the sequence reaches position ", end, ", but the model's block is ", options.block);
}

Variable Gpt::embed(const Tensor& tokens, std::int64_t first_position) const {
  check(tokens, first_position);
  return add(wte(tokens), wpe(kernels::arange(tokens.context(), first_position, tokens.dim(1))));
}

Variable Gpt::embed(const Tensor& tokens, const PackedDocuments& documents) const {
  if (!documents.spans) return embed(tokens, 0);
  KEEL_CHECK(documents.positions.defined() && documents.positions.shape() == tokens.shape(),
             "packed documents have a position for each token of ", tokens);
  return add(wte(tokens), wpe(documents.positions));
}

Variable Gpt::states(const Tensor& tokens, Forward& pass, const PackedDocuments& documents) const {
  ResidualStream stream{Dropout(options.dropout)(embed(tokens, documents), pass)};
  for (const TransformerBlock& block : h) {
    const auto layer = [&block, &pass, spans = documents.spans](const ResidualStream& in) {
      return block(in, pass, spans);
    };
    stream = pass_through(layer, stream, pass, recompute);
  }
  return advance(stream, ln_f);
}

KeyValueCache Gpt::make_cache(std::int64_t batch, std::int64_t positions) const {
  return make_key_value_cache(wte.weight.value(), {.layers = options.layers,
                                                   .batch = batch,
                                                   .kv_heads = options.heads,
                                                   .positions = cache_positions(positions),
                                                   .head_size = options.width / options.heads});
}

Variable Gpt::next_states(const Tensor& tokens, const CachedRows& rows) const {
  check(tokens, rows.longest());
  const auto length = rows.common_length();
  ResidualStream stream{length ? embed(tokens, *length)
                               : add(wte(tokens), wpe(rows.positions(tokens.context(), tokens.dim(1))))};
  for (std::size_t i = 0; i < h.size(); ++i) stream = h[i](stream, rows, i);
  return advance(stream, ln_f);
}

CrossEntropyLoss Gpt::loss_of(const Variable& states, const Tensor& targets, Forward& pass) const {
  return cross_entropy(lm_head(states, pass), targets, {.overwrite_logits = true});
}

void Gpt::visit(Visitor& v) {
  v("wte", wte);
  v("wpe", wpe);
  v("h", h);
  v("ln_f", ln_f);
  v("lm_head", lm_head);
}

}  // namespace keel
