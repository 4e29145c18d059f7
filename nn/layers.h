#pragma once
// The building blocks of models: linear, embedding, norms, dropout, activations, and chains of them.

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "keel/nn/module.h"

namespace keel {

// A module with one input and one output.
class Layer : public Module {
 public:
  virtual Variable forward(const Variable& x, Forward& pass) const = 0;
  Variable operator()(const Variable& x, Forward& pass) const { return forward(x, pass); }
  Variable operator()(const Variable& x) const {  // evaluation
    Forward pass;
    return forward(x, pass);
  }
};

// Neighbouring outputs of a linear layer that is several layers in one product, such as queries, keys and values.
struct LinearPart {
  std::string name;  // "q_proj"
  std::int64_t rows = 0;
};

// A change of low rank to neighbouring outputs of a linear layer: scale b a dropout(x) is added to them (LoRA, Hu et
// al. 2021). a begins as the weights of a linear layer do, b as zero, so that the layer begins as without it.
struct LowRankAdapter {
  std::string part;  // name of the LinearPart; empty: all outputs
  std::int64_t first_row = 0;
  double scale = 1;
  double dropout = 0;
  Parameter a;  // (rank, in)
  Parameter b;  // (rows, rank)
};

// Operands of one product x weight^T.
struct LinearOperands {
  Variable x, weight;
};

// x weight^T + bias for x: (..., in).
class Linear : public Layer {
 public:
  Parameter weight;                      // (out, in)
  Parameter bias;                        // (out), or absent
  std::vector<LinearPart> parts;         // in the order of rows, which are all of them; none: it is one layer
  bool is_one = false;                   // to files and adapters, for all its parts (GPT-2's c_attn)
  bool is_head = false;                  // makes the model's answers, and no hidden states
  std::vector<LowRankAdapter> adapters;  // added by add_adapter(); mostly none
  Linear(std::int64_t in, std::int64_t out, bool with_bias = true);
  Linear(std::int64_t in, std::int64_t out, bool with_bias, Initializer weights,
         Initializer biases = Initializer::zeros());
  Variable forward(const Variable& x, Forward& pass) const override;
  // gelu_tanh() of it, in one product where there is one for it.
  Variable forward_gelu(const Variable& x, Forward& pass) const;
  // Of forward() but for the bias, for functions that take a weight. Of a layer with an adapter these are x with scale
  // a dropout(x) beside it, and the weight with b beside it: a copy of the weight, which gets a gradient as a whole.
  LinearOperands operands(const Variable& x, Forward& pass) const;
  void visit(Visitor& v) override;
  // The parts that files and adapters know as layers of their own.
  std::span<const LinearPart> layers() const { return is_one ? std::span<const LinearPart>() : parts; }
  // Of a part's outputs, or, where there are no parts, of all. Before the model has memory. An Error where there is no
  // such part, where it has an adapter already, and where rank is not at least 1 or dropout not in [0, 1).
  void add_adapter(std::string_view part, std::int64_t rank, double scale, double dropout);
};

// Rows of a table: ids (...) -> (..., width). With `sparse`, the gradient is kept as the rows that were looked up,
// which SparseAdam takes; nothing but look-ups may then use the table.
class Embedding : public Module {
 public:
  Parameter weight;  // (vocabulary, width)
  Embedding(std::int64_t vocabulary, std::int64_t width, Initializer weights = Initializer::normal(1),
            bool sparse = false);
  Variable operator()(const Tensor& ids) const;
  void visit(Visitor& v) override;
};

// The names of all parameters that are an Embedding's table, wherever else they occur.
std::vector<std::string> embedding_tables(Module& model);

class LayerNorm : public Layer {
 public:
  Parameter weight, bias;  // (width); bias may be absent
  double epsilon;
  explicit LayerNorm(std::int64_t width, bool with_bias = true, double epsilon = 1e-5);
  Variable forward(const Variable& x, Forward& pass) const override;
  void visit(Visitor& v) override;
};

class RMSNorm : public Layer {
 public:
  Parameter weight;  // (width)
  double epsilon;
  explicit RMSNorm(std::int64_t width, double epsilon = 1e-6);
  Variable forward(const Variable& x, Forward& pass) const override;
  void visit(Visitor& v) override;
};

// Identity in evaluation. x: (batch, positions, channels); the mask depends on global sample ids only.
class Dropout : public Layer {
 public:
  double probability;
  explicit Dropout(double probability);
  Variable forward(const Variable& x, Forward& pass) const override;
  void visit(Visitor&) override {}
};

enum class ActivationKind : unsigned char { relu, gelu, gelu_tanh, silu, tanh, sigmoid };
ActivationKind parse_activation(std::string_view name);

class Activation : public Layer {
 public:
  ActivationKind kind;
  explicit Activation(ActivationKind kind) : kind(kind) {}
  Variable forward(const Variable& x, Forward& pass) const override;
  void visit(Visitor&) override {}
};

// Linear layers with an activation between them. sizes: {in, hidden..., out}.
class Mlp : public Layer {
 public:
  std::vector<Linear> layers;
  ActivationKind activation;
  explicit Mlp(const std::vector<std::int64_t>& sizes, ActivationKind activation = ActivationKind::relu);
  Variable forward(const Variable& x, Forward& pass) const override;
  void visit(Visitor& v) override;
};

// Layers one after another: `Sequential(Linear(4, 8), Activation(ActivationKind::relu), Linear(8, 1))`.
class Sequential : public Layer {
 public:
  std::vector<std::unique_ptr<Layer>> layers;
  template <class... L>
  requires(std::is_base_of_v<Layer, L>&&...) explicit Sequential(L... given) {
    (layers.push_back(std::make_unique<L>(std::move(given))), ...);
  }
  Variable forward(const Variable& x, Forward& pass) const override;
  void visit(Visitor& v) override;
};

}  // namespace keel
