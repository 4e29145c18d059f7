#include "keel/nn/models/gpt.h"

#include <algorithm>
#include <cmath>

#include "keel/autograd/functions.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/select.h"

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
      head(wte.weight.tie()) {
  KEEL_CHECK(given.vocabulary > 0 && given.block > 0 && given.layers > 0,
             "a GPT needs a vocabulary, a block and layers of at least 1");
  for (int i = 0; i < given.layers; ++i) h.emplace_back(block_options(given));
}

Variable Gpt::embed(const Tensor& tokens, std::int64_t first_position) const {
  KEEL_CHECK(tokens.rank() == 2, "a GPT reads tokens (batch, time), got ", tokens);
  const std::int64_t time = tokens.dim(1);
  KEEL_CHECK(first_position + time <= options.block, "the sequence reaches position ", first_position + time,
             ", but the model's block is ", options.block);
  return add(wte(tokens), wpe(kernels::arange(tokens.context(), first_position, time)));
}

Variable Gpt::embed(const Tensor& tokens, const PackedDocuments& documents) const {
  if (!documents.spans) return embed(tokens, 0);
  KEEL_CHECK(documents.positions.defined() && documents.positions.shape() == tokens.shape(),
             "packed documents have a position for each token of ", tokens);
  return add(wte(tokens), wpe(documents.positions));
}

Variable Gpt::operator()(const Tensor& tokens, Forward& pass, const PackedDocuments& documents) const {
  const Scope scope(*this);
  ResidualStream stream{Dropout(options.dropout)(embed(tokens, documents), pass)};
  for (const TransformerBlock& block : h) {
    if (!recompute) {
      stream = block(stream, pass, documents.spans);
      continue;
    }
    std::vector<Variable> inputs = {stream.sum};
    if (stream.branch.defined()) inputs.push_back(stream.branch);
    const std::vector<Variable> outputs = checkpoint(
        [&block, &pass, spans = documents.spans](std::span<const Variable> in) {
          const ResidualStream out = block(ResidualStream{in[0], in.size() > 1 ? in[1] : Variable()}, pass, spans);
          return std::vector<Variable>{out.sum, out.branch};
        },
        inputs, &pass.random);
    stream = {outputs[0], outputs[1]};
  }
  return linear(advance(stream, ln_f), head, {});
}

CrossEntropyLoss Gpt::loss(const Tensor& tokens, const Tensor& targets, Forward& pass,
                           const PackedDocuments& documents) const {
  return cross_entropy((*this)(tokens, pass, documents), targets, {.overwrite_logits = true});
}

KeyValueCache Gpt::make_cache(std::int64_t batch) const {
  KeyValueCache cache;
  cache.capacity = options.block;
  const Tensor& weight = wte.weight.value();
  for (const TransformerBlock& block : h) {
    const Dims shape = {batch, block.attn.kv_heads(), options.block, options.width / options.heads};
    cache.keys.push_back(empty(weight.context(), shape, weight.dtype()));
    cache.values.push_back(empty(weight.context(), shape, weight.dtype()));
  }
  return cache;
}

Tensor Gpt::next_logits(const Tensor& tokens, KeyValueCache& cache) const {
  const NoGrad no_grad;
  const Scope scope(*this);
  ResidualStream stream{embed(tokens, cache.length)};
  for (std::size_t i = 0; i < h.size(); ++i) stream = h[i](stream, cache, i);
  cache.length += tokens.dim(1);
  const Tensor last = advance(stream, ln_f).value().slice(1, tokens.dim(1) - 1, tokens.dim(1));
  return linear(Variable(last), head, {}).value().select(1, 0);
}

void Gpt::visit(Visitor& v) {
  v("wte", wte);
  v("wpe", wpe);
  v("h", h);
  v("ln_f", ln_f);
  v("lm_head.weight", head);
}

namespace {

// One token drawn from softmax(logits / temperature) over the top k, by the i-th uniform number of the seed.
std::int64_t sample(const Tensor& logits, const SamplingOptions& options, std::uint64_t i) {
  const std::int64_t vocabulary = logits.dim(-1);
  const std::int64_t k = options.temperature == 0 ? 1
                         : options.top_k == 0     ? vocabulary
                                                  : std::min(options.top_k, vocabulary);
  const kernels::TopK top = kernels::top_k(kernels::cast(logits, DType::f32), k);
  const std::vector<float> values = top.values.to_vector<float>();
  const std::vector<std::int64_t> indices = top.indices.to_vector<std::int64_t>();
  if (k == 1) return indices[0];
  std::vector<double> cumulative(static_cast<std::size_t>(k));
  double total = 0;
  for (std::size_t j = 0; j < cumulative.size(); ++j) {
    total += std::exp((values[j] - values[0]) / options.temperature);
    cumulative[j] = total;
  }
  const double threshold = to_uniform(stream_word(key_of(options.seed, "generate"), i)) * total;
  const auto at = std::upper_bound(cumulative.begin(), cumulative.end(), threshold);
  return indices[static_cast<std::size_t>(std::min<std::int64_t>(at - cumulative.begin(), k - 1))];
}

}  // namespace

void generate(const Gpt& model, std::span<const std::int64_t> prompt, const SamplingOptions& options,
              const std::function<bool(std::int64_t)>& on_token) {
  KEEL_CHECK(!prompt.empty(), "generation needs a prompt of at least one token");
  KEEL_CHECK(options.temperature >= 0 && options.top_k >= 0 && options.tokens >= 0,
             "temperature, top_k and tokens must not be negative");
  const Context& context = model.wte.weight.value().context();
  std::vector<std::int64_t> text(prompt.begin(), prompt.end());
  KeyValueCache cache = model.make_cache(1);
  std::size_t unread = text.size();  // tokens at the end of `text` that the cache does not hold yet
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    if (cache.length + static_cast<std::int64_t>(unread) > model.options.block) {
      cache.length = 0;
      unread =
          std::min(text.size(), static_cast<std::size_t>(i == 0 ? model.options.block : (model.options.block + 1) / 2));
    }
    const Tensor tokens =
        from_values(context, std::span<const std::int64_t>(text).last(unread), {1, static_cast<std::int64_t>(unread)});
    const std::int64_t token = sample(model.next_logits(tokens, cache), options, static_cast<std::uint64_t>(i));
    if (!on_token(token)) return;
    text.push_back(token);
    unread = 1;
  }
}

}  // namespace keel
