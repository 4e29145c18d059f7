// Single operations and optimizers against PyTorch: the golden numbers of tests/golden/ops.safetensors.

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>

#include "keel/autograd/attention.h"
#include "keel/autograd/backward.h"
#include "keel/autograd/elementwise.h"
#include "keel/autograd/loss.h"
#include "keel/autograd/norm.h"
#include "keel/data/safetensors.h"
#include "keel/kernels/step_state.h"
#include "keel/optim/optimizer.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::relative_error;

// One case of the file, such as "layer_norm", in fp32 or fp64.
class GoldenOp {
 public:
  GoldenOp(std::string name, DType dtype) : name_(std::move(name)), dtype_(dtype) {}
  std::string key(const std::string& tensor) const { return name_ + "/" + tensor; }
  bool has(const std::string& tensor) const { return file_.contains(key(tensor)); }
  Tensor tensor(const std::string& name, DType dtype) const {
    return kernels::cast(file_.tensor(key(name), context_), dtype);
  }
  Tensor tensor(const std::string& name) const { return tensor(name, dtype_); }
  Variable input(const std::string& name) const { return Variable(tensor(name), true); }

  // By norm of the difference over norm. The file holds fp32 numbers, so fp64 comes no nearer than their rounding.
  void expect(const std::string& name, const Tensor& mine, double fp32_limit = 2e-6) const {
    const double limit = dtype_ == DType::f64 ? 1e-7 : fp32_limit;
    EXPECT_LT(relative_error(doubles(mine), doubles(tensor(name))), limit) << key(name) << " in " << name_of(dtype_);
  }
  // The output of an operation, and the gradients of its inputs from the file's grad_output.
  void expect_differentiated(const Variable& output, const std::map<std::string, Variable>& inputs,
                             double fp32_limit = 2e-6) const {
    expect("output", output.value(), fp32_limit);
    backward(std::array{output}, std::array{tensor("grad_output")});
    for (const auto& [name, variable] : inputs) expect("grad_" + name, variable.grad(), fp32_limit);
  }

 private:
  std::string name_;
  DType dtype_;
  Context context_ = testing::context(2);
  SafetensorsFile file_{KEEL_SOURCE_DIR "/tests/golden/ops.safetensors"};
};

constexpr DType kDTypes[] = {DType::f32, DType::f64};
const std::vector<std::string> kCrossEntropies = {"cross_entropy", "cross_entropy_plain"};
const std::vector<std::string> kNorms = {"layer_norm", "layer_norm_offset", "rms_norm"};
const std::vector<std::string> kAttentions = {"attention_causal", "attention_lengths", "attention_causal_lengths",
                                              "attention_offset"};
const std::vector<std::string> kActivations = {"gelu_exact", "gelu_tanh", "silu"};
const std::vector<std::string> kOptimizers = {"adamw", "sgd"};

TEST(GoldenOps, EveryCaseOfTheFileHasATest) {
  std::set<std::string> tested;
  for (const auto* family : {&kCrossEntropies, &kNorms, &kAttentions, &kActivations, &kOptimizers})
    tested.insert(family->begin(), family->end());
  std::set<std::string> stored;
  const SafetensorsFile file(KEEL_SOURCE_DIR "/tests/golden/ops.safetensors");
  for (const SafetensorsEntry& entry : file.entries()) stored.insert(entry.name.substr(0, entry.name.find('/')));
  EXPECT_EQ(tested, stored);
}

TEST(GoldenOps, CrossEntropyIsPyTorchs) {
  for (const DType dtype : kDTypes)
    for (const std::string& name : kCrossEntropies)
      for (const bool overwrite : {false, true}) {
        const GoldenOp golden(name, dtype);
        const Variable logits = golden.input("logits");
        const CrossEntropyLoss result =
            cross_entropy(logits, golden.tensor("targets", DType::i64),
                          {.label_smoothing = name == "cross_entropy" ? 0.1 : 0.0, .overwrite_logits = overwrite});
        EXPECT_EQ(result.count.item(), 5);
        golden.expect("loss", result.loss.value());
        backward(result.loss, golden.tensor("grad_loss").item());
        golden.expect("grad_logits", logits.grad());
      }
}

TEST(GoldenOps, NormsArePyTorchs) {
  for (const DType dtype : kDTypes)
    for (const std::string& name : kNorms) {
      const GoldenOp golden(name, dtype);
      std::map<std::string, Variable> inputs = {{"x", golden.input("x")}, {"weight", golden.input("weight")}};
      if (golden.has("bias")) inputs["bias"] = golden.input("bias");
      const Variable output = name == "rms_norm" ? rms_norm(inputs["x"], inputs["weight"], 1e-6)
                                                 : layer_norm(inputs["x"], inputs["weight"], inputs["bias"], 1e-5);
      // Near 100 an fp32 mean is only known to 1e-5 of the deviations.
      golden.expect_differentiated(output, inputs, name == "layer_norm_offset" ? 2e-5 : 2e-6);
    }
}

TEST(GoldenOps, AttentionIsPyTorchs) {
  for (const DType dtype : kDTypes)
    for (const std::string& name : kAttentions) {
      const GoldenOp golden(name, dtype);
      const std::map<std::string, Variable> inputs = {
          {"q", golden.input("q")}, {"k", golden.input("k")}, {"v", golden.input("v")}};
      AttentionOptions options;
      options.causal = name != "attention_lengths";
      options.q_offset = name == "attention_offset" ? 4 : 0;
      if (golden.has("lengths")) options.lengths = golden.tensor("lengths", DType::i64);
      golden.expect_differentiated(attention(inputs.at("q"), inputs.at("k"), inputs.at("v"), options), inputs);
    }
}

TEST(GoldenOps, ActivationsArePyTorchs) {
  for (const DType dtype : kDTypes)
    for (const std::string& name : kActivations) {
      const GoldenOp golden(name, dtype);
      const Variable x = golden.input("x");
      golden.expect_differentiated(name == "silu" ? silu(x) : name == "gelu_tanh" ? gelu_tanh(x) : gelu(x), {{"x", x}});
    }
}

TEST(GoldenOps, OptimizerStepsArePyTorchs) {
  for (const DType dtype : kDTypes)
    for (const std::string& name : kOptimizers) {
      const GoldenOp golden(name, dtype);
      const bool adamw = name == "adamw";
      const auto optimizer = adamw
                                 ? make_adamw({.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1})
                                 : make_sgd({.momentum = 0.9, .dampening = 0, .weight_decay = 0.01, .nesterov = true});
      ParameterRange range;
      range.parameter = kernels::clone(golden.tensor("parameter"));
      for (std::size_t i = 0; i < optimizer->state_names().size(); ++i)
        range.state.push_back(kernels::full(range.parameter.context(), range.parameter.shape(), 0, dtype));
      const Tensor gradients = golden.tensor("gradients");
      std::vector<double> history;
      for (std::int64_t step = 0; step < gradients.dim(0); ++step) {
        range.gradient = gradients.select(0, step);
        const Tensor state = kernels::make_step_state(range.parameter.context(),
                                                      {.steps = step + 1, .taken = 1, .lr = adamw ? 1e-2 : 0.1});
        optimizer->update(std::array{range}, {state});
        const std::vector<double> now = doubles(range.parameter);
        history.insert(history.end(), now.begin(), now.end());
      }
      golden.expect("parameter_per_step",
                    testing::tensor_of(range.parameter.context(), history, gradients.shape(), dtype));
      golden.expect(adamw ? "exp_avg" : "momentum_buffer", range.state[0]);
      if (adamw) golden.expect("exp_avg_sq", range.state[1]);
    }
}

}  // namespace
}  // namespace keel
