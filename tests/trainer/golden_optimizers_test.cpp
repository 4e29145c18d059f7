// Fifty steps of every optimizer, as configurations name it, against PyTorch or the formula of the original library:
// the golden numbers of tests/golden/optimizers.safetensors.

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "keel/data/safetensors.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/step_state.h"
#include "keel/trainer/assembly.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::relative_error;

struct Case {
  std::string name;            // in the file
  std::string options;         // of the section `optimizer`
  std::string scheduler = {};  // without one, the rate falls from step to step
};

const Case kCases[] = {
    {"sgd", "lr: 0.1, type: SGD, weight_decay: 0.1"},
    {"sgd_momentum", "lr: 0.1, type: sgd, weight_decay: 0.1, momentum: 0.9, dampening: 0.3"},
    {"sgd_nesterov", "lr: 0.1, type: SGD, weight_decay: 0.1, momentum: 0.9, nesterov: true"},
    {"sgd_maximize", "lr: 0.1, type: SGD, weight_decay: 0.1, momentum: 0.9, maximize: true"},
    {"adam", "lr: 0.01, type: Adam, weight_decay: 0.1, betas: [0.9, 0.95]"},
    {"adam_amsgrad", "lr: 0.01, type: Adam, weight_decay: 0.1, amsgrad: true"},
    {"adam_maximize", "lr: 0.01, type: adam, weight_decay: 0.1, maximize: true"},
    {"adamw", "lr: 0.01, type: FusedAdam, weight_decay: 0.1"},
    {"adamw_amsgrad", "lr: 0.01, type: fuse_adam, weight_decay: 0.1, amsgrad: true"},
    {"adamw_maximize", "lr: 0.01, type: adamw, weight_decay: 0.1, maximize: true"},
    {"hf_adamw", "lr: 0.01, type: HFAdamW, weight_decay: 0.1"},
    {"hf_adamw_biased", "lr: 0.01, type: hf_adamw, weight_decay: 0.1, correct_bias: false"},
    {"tf_adamw", "lr: 0.01, type: tf_adamw, weight_decay: 0.1"},
    {"tf_adamw_amsgrad", "lr: 0.01, type: TFAdamW, weight_decay: 0.1, amsgrad: true"},
    {"adamax", "lr: 0.01, type: Adamax, weight_decay: 0.1"},
    {"adamax_maximize", "lr: 0.01, type: Adamax, weight_decay: 0.1, maximize: true"},
    {"nadam", "lr: 0.01, type: NAdam, weight_decay: 0.1"},
    {"nadam_decoupled", "lr: 0.01, type: NAdam, weight_decay: 0.1, momentum_decay: 0.1, decoupled_weight_decay: true"},
    {"nadam_maximize", "lr: 0.01, type: nadam, weight_decay: 0.1, maximize: true"},
    {"radam", "lr: 0.01, type: RAdam, weight_decay: 0.1"},
    {"radam_decoupled", "lr: 0.01, type: RAdam, weight_decay: 0.1, betas: [0.8, 0.9], decoupled_weight_decay: true"},
    {"radam_maximize", "lr: 0.01, type: RAdam, weight_decay: 0.1, maximize: true"},
    {"adagrad", "lr: 0.01, type: Adagrad, weight_decay: 0.1"},
    {"adagrad_decaying", "lr: 0.1, type: Adagrad, weight_decay: 0.1, lr_decay: 0.1, initial_accumulator: 0.5"},
    {"adagrad_maximize", "lr: 0.01, type: adagrad, weight_decay: 0.1, maximize: true"},
    {"adadelta", "lr: 1, type: Adadelta, weight_decay: 0.1"},
    {"adadelta_maximize", "lr: 1, type: Adadelta, weight_decay: 0.1, rho: 0.8, maximize: true"},
    {"rmsprop", "lr: 0.01, type: RMSprop, weight_decay: 0.1"},
    {"rmsprop_momentum", "lr: 0.001, type: RMSprop, weight_decay: 0.1, alpha: 0.9, momentum: 0.9"},
    {"rmsprop_centered", "lr: 0.001, type: RMSprop, weight_decay: 0.1, alpha: 0.9, centered: true"},
    {"rmsprop_both",
     "lr: 0.001, type: RMSprop, weight_decay: 0.1, alpha: 0.9, centered: true, momentum: 0.9, eps: 0.001"},
    {"rmsprop_maximize", "lr: 0.01, type: rmsprop, weight_decay: 0.1, maximize: true"},
    {"rprop", "lr: 0.01, type: Rprop"},
    {"rprop_limits", "lr: 0.01, type: Rprop, etas: [0.4, 1.5], step_sizes: [0.005, 0.02], maximize: true"},
    {"asgd", "lr: 0.1, type: ASGD, weight_decay: 0.1, lambd: 0.01"},
    {"asgd_averaging", "lr: 0.1, type: ASGD, weight_decay: 0.1, lambd: 0.5, alpha: 0.6, t0: 10"},
    {"asgd_maximize", "lr: 0.01, type: asgd, weight_decay: 0.1, maximize: true"},
    {"sgd_cycled", "lr: 0.1, type: SGD, weight_decay: 0.1", "type: OneCycleLR"},
    {"sgd_nesterov_cycled", "lr: 0.1, type: SGD, weight_decay: 0.1, momentum: 0.9, nesterov: true", "type: OneCycleLR"},
    {"adam_cycled", "lr: 0.01, type: Adam, weight_decay: 0.1", "type: OneCycleLR"},
    {"adamax_cycled", "lr: 0.01, type: Adamax, weight_decay: 0.1", "type: OneCycleLR"},
    {"nadam_cycled", "lr: 0.01, type: NAdam, weight_decay: 0.1", "type: OneCycleLR"},
    {"radam_cycled", "lr: 0.01, type: RAdam, weight_decay: 0.1", "type: OneCycleLR"},
    {"rmsprop_cycled", "lr: 0.001, type: RMSprop, weight_decay: 0.1, centered: true", "type: OneCycleLR"},
    {"lion", "lr: 0.01, type: Lion, weight_decay: 0.1"},
    {"lion_maximize", "lr: 0.01, type: lion, weight_decay: 0.1, betas: [0.95, 0.98], maximize: true"},
};

constexpr std::int64_t kStored[] = {1, 2, 7, 50};  // steps whose weights the file holds
const std::array<std::string, 3> kNames = {"decayed", "free", "still"};

class Golden {
 public:
  const SafetensorsFile& file() const { return file_; }
  Tensor tensor(const std::string& name, DType dtype) const {
    return kernels::cast(file_.tensor(name, context_), dtype);
  }

  // The weights of each parameter after the stored steps.
  std::vector<std::vector<double>> train(const Case& golden, DType dtype) const {
    const Config config =
        parse_config("{steps: 50, data: {type: addition}, optimizer: {" + golden.options + "}, scheduler: {" +
                         (golden.scheduler.empty() ? "type: LinearLR, start_factor: 1, end_factor: 0.5, total_iters: 50"
                                                   : golden.scheduler) +
                         "}}",
                     "golden.yaml");
    const std::unique_ptr<Optimizer> optimizer = make_optimizer(config);
    std::vector<ParameterRange> ranges;
    std::vector<Tensor> gradients;
    for (const std::string& name : kNames) {
      ParameterRange range;
      range.parameter = kernels::clone(tensor("problem/" + name, dtype));
      for (std::size_t i = 0; i < optimizer->state_names().size(); ++i)
        range.state.push_back(
            kernels::full(context_, range.parameter.shape(), optimizer->initial_state(i), range.parameter.dtype()));
      if (name == "free") range.group = {.lr_factor = 0.5, .decay_factor = 0};
      gradients.push_back(name == "still" ? zeros(context_, {50, range.parameter.numel()}, dtype)
                                          : tensor("problem/" + name + "_gradients", dtype));
      ranges.push_back(range);
    }
    const StepCurves curves = make_curves(config, context_);
    StepInput input = {.step = kernels::make_step_state(context_)};
    if (const SharedNumber* shared = optimizer->shared_number())
      input.shared = testing::tensor_of(context_, {shared->initial}, {1}, DType::f64);
    std::vector<std::vector<double>> history(kNames.size());
    for (std::int64_t step = 0; step < 50; ++step) {
      kernels::add_tokens(input.step, 1);
      kernels::decide_step({.state = input.step, .curves = curves});
      for (std::size_t i = 0; i < ranges.size(); ++i) ranges[i].gradient = gradients[i].select(0, step);
      optimizer->update(ranges, input);
      optimizer->advance(input);
      if (std::find(std::begin(kStored), std::end(kStored), step + 1) == std::end(kStored)) continue;
      for (std::size_t i = 0; i < ranges.size(); ++i)
        for (const double value : doubles(ranges[i].parameter)) history[i].push_back(value);
    }
    return history;
  }

 private:
  Context context_ = testing::context(1);
  SafetensorsFile file_{KEEL_SOURCE_DIR "/tests/golden/optimizers.safetensors"};
};

TEST(GoldenOptimizers, EveryCaseOfTheFileAndEveryOptimizerHasATest) {
  const Golden golden;
  std::set<std::string> stored, tested = {"problem"};
  for (const SafetensorsEntry& entry : golden.file().entries())
    stored.insert(entry.name.substr(0, entry.name.find('/')));
  std::set<std::string_view> types, known;
  for (const Case& each : kCases) {
    tested.insert(each.name);
    const std::string type = each.options.substr(each.options.find("type: ") + 6);
    types.insert(find_optimizer(type.substr(0, type.find(','))).name);
  }
  for (const OptimizerEntry& entry : optimizers()) known.insert(entry.name);
  EXPECT_EQ(tested, stored);
  EXPECT_EQ(types, known);
}

TEST(GoldenOptimizers, FiftyStepsAreThoseOfTheOriginals) {
  const Golden golden;
  for (const Case& each : kCases)
    for (const DType dtype : {DType::f32, DType::f64}) {
      const std::vector<std::vector<double>> mine = golden.train(each, dtype);
      // The file holds fp32 numbers, so fp64 comes no nearer than their rounding.
      for (std::size_t i = 0; i < kNames.size(); ++i)
        EXPECT_LT(relative_error(mine[i], doubles(golden.tensor(each.name + "/" + kNames[i], DType::f64))),
                  dtype == DType::f64 ? 1e-7 : 1e-6)
            << each.name << '/' << kNames[i] << " in " << name_of(dtype);
    }
}

}  // namespace
}  // namespace keel
