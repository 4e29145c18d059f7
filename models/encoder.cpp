#include "keel/models/encoder.h"

#include "keel/autograd/functions.h"
#include "keel/kernels/elementwise.h"
#include "keel/nn/transformer.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr Initializer kEncoderWeights = {Initializer::Kind::normal, 0, 0.02};

Linear weighted(std::int64_t in, std::int64_t out) { return Linear(in, out, /*with_bias=*/true, kEncoderWeights); }

const EncoderOptions& checked(const EncoderOptions& options) {
  KEEL_CHECK(options.family != nullptr, "an encoder needs a family; see encoder_family()");
  KEEL_CHECK(options.vocabulary > 0 && options.block > 0 && options.layers > 0 && options.width > 0,
             "an encoder needs a vocabulary, a block, layers and a width of at least 1");
  KEEL_CHECK(options.heads > 0 && options.width % options.heads == 0, "width ", options.width, " is not a multiple of ",
             options.heads, " heads");
  return options;
}

// norm(x + branch), in one pass.
Variable added_and_normalised(const Variable& x, const Variable& branch, const LayerNorm& norm) {
  return add_norm(NormKind::layer, x, branch, norm.weight, norm.bias, norm.epsilon).out;
}

}  // namespace

EncoderLayer::EncoderLayer(const EncoderOptions& options)
    : qkv(weighted(options.width, 3 * options.width)),
      attention_output(weighted(options.width, options.width)),
      attention_norm(options.width, /*with_bias=*/true, options.epsilon),
      inner(weighted(options.width, options.inner_width())),
      outer(weighted(options.inner_width(), options.width)),
      norm(options.width, /*with_bias=*/true, options.epsilon),
      family_(options.family),
      heads_(options.heads),
      activation_(options.activation),
      dropout_(options.dropout),
      attention_dropout_(options.attention_dropout) {
  for (const std::string_view part : family_->layer.parts) qkv.parts.push_back({std::string(part), options.width});
}

Variable EncoderLayer::operator()(const Variable& x, const Tensor& lengths, Forward& pass) const {
  const Scope scope(*this);
  const AttentionOptions attends = {.lengths = lengths, .dropout = attention_dropout(attention_dropout_, pass)};
  const Variable attended = attention_output(attention_packed(qkv(x, pass), heads_, heads_, attends), pass);
  const Variable y = added_and_normalised(x, dropout_(attended, pass), attention_norm);
  return added_and_normalised(y, dropout_(outer(activated(inner, activation_, y, pass), pass), pass), norm);
}

void EncoderLayer::visit(Visitor& v) {
  const EncoderFamily::LayerNames& names = family_->layer;
  v(names.qkv, qkv);
  v(names.attention_output, attention_output);
  v(names.attention_norm, attention_norm);
  v(names.inner, inner);
  v(names.outer, outer);
  v(names.norm, norm);
}

Encoder::Encoder(const EncoderOptions& given, const HeadOptions& given_head)
    : options(checked(given)),
      head_options(given_head),
      words(given.vocabulary, given.embedding_width(), kEncoderWeights),
      positions(given.first_position() + given.block, given.embedding_width(), kEncoderWeights),
      embedding_norm(given.embedding_width(), /*with_bias=*/true, given.epsilon) {
  if (given.token_types > 0)
    types = std::make_unique<Embedding>(given.token_types, given.embedding_width(), kEncoderWeights);
  if (given.embedding_width() != given.width)
    projection = std::make_unique<Linear>(weighted(given.embedding_width(), given.width));
  for (int i = 0; i < given.layers; ++i) layers.emplace_back(given);
  head = make_encoder_head(given, given_head, words.weight);
}

void Encoder::check(const EncoderInput& input) const {
  KEEL_CHECK(input.tokens.rank() == 2, "an encoder reads tokens (batch, time), got ", input.tokens);
  KEEL_CHECK(input.tokens.dim(1) <= options.block, "the sequence has ", input.tokens.dim(1),
             " tokens, but the model's block is ", options.block);
  KEEL_CHECK(!input.types.defined() || types != nullptr, options.family->name,
             " has no types of tokens; leave out EncoderInput::types");
  KEEL_CHECK(!input.types.defined() || input.types.shape() == input.tokens.shape(),
             "types of tokens are shaped like the tokens ", input.tokens, ", got ", input.types);
}

// The table's row of type 0 joins positions where no types are given.
Variable Encoder::embed(const EncoderInput& input) const {
  const Context& context = input.tokens.context();
  const Variable places = positions(kernels::arange(context, options.first_position(), input.tokens.dim(1)));
  if (types == nullptr) return embedding_norm(add(words(input.tokens), places));
  if (!input.types.defined()) {
    const Tensor first = kernels::arange(context, 0, 1);
    return embedding_norm(add(words(input.tokens), add(places, (*types)(first))));
  }
  return added_and_normalised(add(words(input.tokens), places), (*types)(input.types), embedding_norm);
}

Variable Encoder::encode(const EncoderInput& input, Forward& pass) const {
  check(input);
  Variable x = Dropout(options.dropout)(embed(input), pass);
  if (projection != nullptr) x = (*projection)(x, pass);
  for (const EncoderLayer& layer : layers) {
    if (!recompute) {
      x = layer(x, input.lengths, pass);
      continue;
    }
    const std::array inputs = {x};
    x = checkpoint([&layer, &pass, lengths = input.lengths](
                       std::span<const Variable> in) { return std::vector<Variable>{layer(in[0], lengths, pass)}; },
                   inputs, &pass.random)[0];
  }
  return x;
}

Variable Encoder::apply_head(const Variable& states, const EncoderInput& /*input*/, Forward& pass) const {
  KEEL_CHECK(head != nullptr, "this encoder has no head; ask for states(), or make it with one (HeadOptions)");
  return (*head)(states, pass);
}

CrossEntropyLoss Encoder::masked_loss_of(const Variable& states, const Tensor& labels, Forward& /*pass*/) const {
  KEEL_CHECK(head != nullptr, "this encoder has no head; make it with EncoderHead::masked_language");
  return head->masked_loss(states, labels);
}

void Encoder::visit(Visitor& v) {
  const auto place = [&](std::string_view name) {
    return head == nullptr ? std::string(name) : concat(options.family->base, '.', name);
  };
  v(place("embeddings.word_embeddings"), words);
  v(place("embeddings.position_embeddings"), positions);
  if (types != nullptr) v(place("embeddings.token_type_embeddings"), *types);
  v(place("embeddings.LayerNorm"), embedding_norm);
  if (projection != nullptr) v(place("embeddings_project"), *projection);
  v(place(options.family->layer.at), layers);
  if (head != nullptr) head->visit(v);
}

}  // namespace keel
