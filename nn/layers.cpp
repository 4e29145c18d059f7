#include "keel/nn/layers.h"

#include <array>
#include <set>

#include "keel/autograd/functions.h"

namespace keel {
namespace {

struct ActivationRow {
  std::string_view name;
  ActivationKind kind;
  Variable (*function)(const Variable&);
};
constexpr std::array<ActivationRow, 6> kActivations = {{
    {"relu", ActivationKind::relu, relu},
    {"gelu", ActivationKind::gelu, gelu},
    {"gelu_tanh", ActivationKind::gelu_tanh, gelu_tanh},
    {"silu", ActivationKind::silu, silu},
    {"tanh", ActivationKind::tanh, tanh},
    {"sigmoid", ActivationKind::sigmoid, sigmoid},
}};

// Empty where nothing is dropped. Rows of a matrix are samples.
Variable with_dropout(double probability, const Variable& x, Forward& pass) {
  if (!pass.training || probability == 0) return {};
  const Dropout dropout(probability);
  return x.value().rank() == 2 ? dropout(view(x, {x.dim(0), 1, x.dim(1)}), pass) : dropout(x, pass);
}

}  // namespace

ActivationKind parse_activation(std::string_view name) {
  std::string known;
  for (const ActivationRow& row : kActivations) {
    if (row.name == name) return row.kind;
    known += concat(known.empty() ? "" : ", ", row.name);
  }
  throw Error(concat("unknown activation '", name, "'; known are ", known));
}

Linear::Linear(std::int64_t in, std::int64_t out, bool with_bias)
    : Linear(in, out, with_bias, Initializer::fan_in(in), Initializer::fan_in(in)) {}

Linear::Linear(std::int64_t in, std::int64_t out, bool with_bias, Initializer weights, Initializer biases)
    : weight({out, in}, weights) {
  if (with_bias) bias = Parameter({out}, biases);
}

Variable Linear::forward(const Variable& x, Forward& pass) const {
  if (adapters.empty()) return linear(x, weight, bias);
  std::vector<LowRankTerm> terms;
  for (const LowRankAdapter& adapter : adapters)
    terms.push_back({.a = adapter.a,
                     .b = adapter.b,
                     .scale = adapter.scale,
                     .first_row = adapter.first_row,
                     .x = with_dropout(adapter.dropout, x, pass)});
  return linear_low_rank(x, weight, bias, terms);
}

Variable Linear::forward_gelu(const Variable& x, Forward& pass) const {
  if (bias.defined() && adapters.empty()) return linear_gelu(x, weight, bias);
  return gelu_tanh(forward(x, pass));
}

LinearOperands Linear::operands(const Variable& x, Forward& pass) const {
  if (adapters.empty()) return {x, weight};
  KEEL_CHECK(layers().empty(), "operands of one product are of a layer without parts");
  const LowRankAdapter& adapter = adapters.front();
  const Variable dropped = with_dropout(adapter.dropout, x, pass);
  const std::array<Variable, 2> in = {x, scale(linear(dropped.defined() ? dropped : x, adapter.a, {}), adapter.scale)},
                                weights = {weight, adapter.b};
  return {concat(in, -1), concat(weights, 1)};
}

void Linear::visit(Visitor& v) {
  v("weight", weight);
  v("bias", bias);
  for (LowRankAdapter& adapter : adapters) {
    const std::string path = adapter.part.empty() ? "" : adapter.part + '.';
    v(path + "lora_A.weight", adapter.a);
    v(path + "lora_B.weight", adapter.b);
  }
}

void Linear::add_adapter(std::string_view part, std::int64_t rank, double scale, double dropout) {
  KEEL_CHECK(rank >= 1, "an adapter has a rank of at least 1, got ", rank);
  KEEL_CHECK(dropout >= 0 && dropout < 1, "an adapter's dropout must be in [0, 1), got ", dropout);
  std::int64_t first_row = 0, rows = weight.shape()[0];
  if (!layers().empty()) {
    auto at = parts.begin();
    for (; at != parts.end() && at->name != part; ++at) first_row += at->rows;
    KEEL_CHECK(at != parts.end(), "a linear layer of several, ", weight.shape(), ", has no part '", part, "'");
    rows = at->rows;
  } else {
    KEEL_CHECK(part.empty(), "a linear layer ", weight.shape(), " has no part '", part, "'");
  }
  for (const LowRankAdapter& other : adapters)
    KEEL_CHECK(first_row + rows <= other.first_row || other.first_row + other.b.shape()[0] <= first_row, "outputs ",
               first_row, " to ", first_row + rows, " of a linear layer have an adapter already");
  const std::int64_t in = weight.shape()[1];
  adapters.push_back({.part = std::string(part),
                      .first_row = first_row,
                      .scale = scale,
                      .dropout = dropout,
                      .a = Parameter({rank, in}, Initializer::fan_in(in)),
                      .b = Parameter({rows, rank}, Initializer::zeros())});
}

Embedding::Embedding(std::int64_t vocabulary, std::int64_t width, Initializer weights, bool sparse)
    : weight({vocabulary, width}, weights) {
  weight.set_sparse(sparse);
}
Variable Embedding::operator()(const Tensor& ids) const { return embedding(weight, ids); }
void Embedding::visit(Visitor& v) { v("weight", weight); }

std::vector<std::string> embedding_tables(Module& model) {
  std::set<const Parameter::State*> tables;
  for_each_module(model, [&](const std::string&, Module& module) {
    if (const auto* embedding = dynamic_cast<const Embedding*>(&module)) tables.insert(embedding->weight.state().get());
  });
  std::vector<std::string> names;
  for_each_parameter(model, [&](const std::string& name, Parameter& parameter) {
    if (tables.contains(parameter.state().get())) names.push_back(name);
  });
  return names;
}

LayerNorm::LayerNorm(std::int64_t width, bool with_bias, double epsilon)
    : weight({width}, Initializer::ones()), epsilon(epsilon) {
  if (with_bias) bias = Parameter({width}, Initializer::zeros());
}
Variable LayerNorm::forward(const Variable& x, Forward&) const { return layer_norm(x, weight, bias, epsilon); }
void LayerNorm::visit(Visitor& v) {
  v("weight", weight);
  v("bias", bias);
}

RMSNorm::RMSNorm(std::int64_t width, double epsilon) : weight({width}, Initializer::ones()), epsilon(epsilon) {}
Variable RMSNorm::forward(const Variable& x, Forward&) const { return rms_norm(x, weight, epsilon); }
void RMSNorm::visit(Visitor& v) { v("weight", weight); }

Dropout::Dropout(double probability) : probability(probability) {
  KEEL_CHECK(probability >= 0 && probability < 1, "dropout probability must be in [0, 1), got ", probability);
}
Variable Dropout::forward(const Variable& x, Forward& pass) const {
  if (!pass.training || probability == 0) return x;
  KEEL_CHECK(pass.sample_ids.defined(), "training with dropout needs the batch's sample ids (Forward::sample_ids)");
  return dropout(x, probability, pass.random.next(), pass.sample_ids);
}

Variable Activation::forward(const Variable& x, Forward&) const {
  return kActivations[static_cast<std::size_t>(kind)].function(x);
}

Mlp::Mlp(const std::vector<std::int64_t>& sizes, ActivationKind activation) : activation(activation) {
  KEEL_CHECK(sizes.size() >= 2, "an Mlp needs at least an input and an output size");
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) layers.emplace_back(sizes[i], sizes[i + 1]);
  layers.back().is_head = true;
}
Variable Mlp::forward(const Variable& x, Forward& pass) const {
  const Activation activate(activation);
  Variable h = x;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    h = layers[i](h, pass);
    if (i + 1 < layers.size()) h = activate(h, pass);
  }
  return h;
}
void Mlp::visit(Visitor& v) { v("layers", layers); }

Variable Sequential::forward(const Variable& x, Forward& pass) const {
  Variable h = x;
  for (const auto& layer : layers) h = layer->forward(h, pass);
  return h;
}
void Sequential::visit(Visitor& v) { v("layers", layers); }

}  // namespace keel
