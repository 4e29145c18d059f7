#pragma once
// What a host can train: a model with inputs and outputs that have names.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "keel/autograd/variable.h"
#include "keel/nn/module.h"
#include "keel/trainer/config.h"

namespace keel::capi {

// Where arrays go in or come out: numbers (samples..., width). An input of width 0 is whole numbers (samples...).
struct Port {
  std::string name;
  std::int64_t width = 0;
};

class Network {
 public:
  virtual ~Network() = default;
  virtual Module& module() = 0;
  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }
  // Throws an Error where the samples' extents do not fit the model.
  virtual void check_samples(const Dims& /*samples*/) const {}
  // Whether a pass that trains draws random numbers, for which it needs ids of the samples.
  virtual bool draws() const { return false; }
  // A variable for each output, of a tensor for each input in the dtype of the pass.
  virtual std::vector<Variable> forward(std::span<const Tensor> inputs, Forward& pass) const = 0;

 protected:
  Network(std::vector<Port> inputs, std::vector<Port> outputs)
      : inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}

 private:
  std::vector<Port> inputs_, outputs_;
};

// See keel_model_create_mlp().
std::unique_ptr<Network> make_mlp_network(const std::vector<std::int64_t>& widths, const std::string& activation);
// See keel_model_create_text().
std::unique_ptr<Network> make_text_network(const std::string& text, std::int64_t inputs);
// The configuration's model.
std::unique_ptr<Network> make_gpt_network(const Config& config);

}  // namespace keel::capi
