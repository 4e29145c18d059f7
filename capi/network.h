#pragma once
// What a host can train: how a model reads the host's arrays, what its loss is, and what it answers.

#include <memory>
#include <vector>

#include "keel/capi/array.h"
#include "keel/nn/module.h"
#include "keel/trainer/config.h"

namespace keel::capi {

// A loss, and how many samples (or tokens) it is the mean of.
struct SampleLoss {
  Variable value;
  std::int64_t samples = 0;
};

class Network {
 public:
  virtual ~Network() = default;
  virtual Module& module() = 0;
  // Throws an Error where the arrays cannot be trained on; called before anything is computed.
  virtual void check(const Array& input, const Array& target) const = 0;
  virtual SampleLoss loss(const Array& input, const Array& target) const = 0;
  // Throws an Error where the arrays cannot be input and answer.
  virtual void check_answer(const Array& input, const Array& output) const = 0;
  // The model's answer to the input, in the output's shape.
  virtual Tensor answer(const Array& input, const Array& output) const = 0;
};

// See keel_model_create_mlp().
std::unique_ptr<Network> make_mlp_network(const std::vector<std::int64_t>& widths, const std::string& activation,
                                          const std::string& loss);
// The configuration's model.
std::unique_ptr<Network> make_gpt_network(const Config& config);

}  // namespace keel::capi
