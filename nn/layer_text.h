#pragma once
// Models from a text: "dense 32 tanh; dense 1".
//
// A text is items with a semicolon or a line's end between them: inputs first, then layers, then outputs.
//
//   input NAME WIDTH                numbers of a sample; all inputs are put together
//   embedding NAME CLASSES WIDTH    a whole number of a sample, as a row of a table
//   dense WIDTH [ACTIVATION]        a linear layer, and what parse_activation() knows
//   ACTIVATION, layernorm, rmsnorm, dropout PROBABILITY
//   output NAME WIDTH               a linear layer of its own on what the layers give
//
// A text without inputs has one, "input", whose width the caller says; one without outputs has one, "output": what the
// last layer gives.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/nn/layers.h"

namespace keel {

// Parameters are layers.I.weight and .bias (I counts the layers, also those without parameters), inputs.NAME.weight of
// embeddings, and outputs.NAME.weight and .bias. "dense 8 tanh; dense 1" has names, initial numbers and bits of
// Mlp({inputs, 8, 1}, tanh).
class TextModel : public Module {
 public:
  struct Input {
    std::string name;
    std::int64_t width = 0;                      // numbers, or columns of the table
    std::unique_ptr<Embedding> table = nullptr;  // of whole numbers in [0, its rows); null: numbers
  };
  struct Output {
    std::string name;
    std::int64_t width = 0;
    std::unique_ptr<Linear> layer = nullptr;  // null: the last layer's numbers
  };

  // `inputs`: how many numbers a sample has where the text names no input; 0 where it does. An Error says at which
  // character of the text what is wrong.
  explicit TextModel(std::string_view text, std::int64_t inputs = 0);

  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  // Inputs are (samples, width), of embeddings i32 or i64 (samples); outputs are (samples, width). A pass that trains
  // with dropout needs sample ids (samples).
  std::vector<Variable> operator()(std::span<const Tensor> inputs, Forward& pass) const;
  void visit(Visitor& v) override;

  // Keep only the input of each dense layer, and compute it and what follows up to the next one again during backward.
  bool recompute = false;

 private:
  Variable run_layers(const Variable& input, Forward& pass) const;

  std::vector<Input> inputs_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<Output> outputs_;
};

}  // namespace keel
