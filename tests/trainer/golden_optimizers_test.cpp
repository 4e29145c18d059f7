// Fifty steps of every optimizer, as configurations name it, against PyTorch or the formula of the original library:
// the golden numbers of tests/golden/optimizers.safetensors.

#include <gtest/gtest.h>

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

struct OptimizerCase {
  std::string name;            // in the file
  std::string options;         // of the section `optimizer`; what is left out is the default
  std::string scheduler = {};  // without one, the rate falls from step to step
};

const OptimizerCase kOptimizerCases[] = {
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
    {"adam_8bit", "lr: 0.01, type: Adam8bit, weight_decay: 0.1, betas: [0.9, 0.95]"},
    {"adamw_8bit", "lr: 0.01, type: adamw_bnb_8bit, weight_decay: 0.1"},
    {"adamw_8bit_small", "lr: 0.01, type: AdamW8bit, weight_decay: 0.1, min_8bit_size: 512"},
    {"lamb", "lr: 0.01, type: Lamb, weight_decay: 0.1"},
    {"lamb_bounded",
     "lr: 0.01, type: LAMB, weight_decay: 0.1, betas: [0.8, 0.9], eps: 0.001, min_coeff: 0.5, max_coeff: 0.6"},
    {"lamb_biased", "lr: 0.001, type: FusedLamb, weight_decay: 0.1, bias_correction: false"},
    {"lamb_apex", "lr: 0.01, type: lamb, weight_decay: 0.1, use_nvlamb: false, min_coeff: 0, max_coeff: 1.0e9"},
    {"lars", "lr: 1, type: LARS, weight_decay: 0.1"},
    {"lars_dampened",
     "lr: 1, type: lars, weight_decay: 0.1, momentum: 0.8, dampening: 0.3, trust_coefficient: 0.02, eps: 0.01"},
    {"lars_nesterov", "lr: 1, type: LARS, weight_decay: 0.1, nesterov: true"},
    {"lars_plain", "lr: 1, type: LARS, weight_decay: 0.1, momentum: 0"},
    {"adafactor", "type: Adafactor, weight_decay: 0.1"},
    {"adafactor_warmup", "type: adafactor, weight_decay: 0.1, warmup_init: true, decay_rate: -0.6"},
    {"adafactor_rate", "lr: 0.01, type: Adafactor, weight_decay: 0.1, relative_step: false, epsilons: [1e-3, 0.6]"},
    {"adafactor_framework",
     "lr: 0.01, type: Adafactor, weight_decay: 0.1, relative_step: false, scale_parameter: false, beta1: 0.9, "
     "clip_threshold: 0.5"},
};

constexpr std::int64_t kStoredSteps[] = {1, 2, 7, 50};  // steps whose weights the file holds

// What a case trains: optimizers that look at whole parameters, or keep states in blocks, have a problem of their own.
struct Problem {
  std::string name;
  std::vector<std::string> parameters;
  bool in_a_row = false;  // the gradient of step i begins with number i
};
const Problem kNumbers = {"problem", {"decayed", "free", "still"}};
const Problem kBlocks = {"blocks", {"decayed", "free", "still"}, true};
const Problem kMatrices = {"matrices", {"decayed", "free", "still", "decayed_vector", "free_vector"}};

class OptimizerFile {
 public:
  const SafetensorsFile& file() const { return file_; }
  Tensor tensor(const std::string& name, DType dtype) const {
    return kernels::cast(file_.tensor(name, context_), dtype);
  }

  // The weights of each parameter after the stored steps, and their names.
  struct History {
    std::vector<std::string> names;
    std::vector<std::vector<double>> weights;
  };
  History train(const OptimizerCase& golden, DType dtype) const {
    const Config config =
        parse_config("{steps: 50, data: {type: addition}, optimizer: {" + golden.options + "}, scheduler: {" +
                         (golden.scheduler.empty() ? "type: LinearLR, start_factor: 1, end_factor: 0.5, total_iters: 50"
                                                   : golden.scheduler) +
                         "}}",
                     "golden.yaml");
    const std::unique_ptr<Optimizer> optimizer = make_optimizer(config);
    const Problem& problem = optimizer->requirements().passes > 0  ? kMatrices
                             : optimizer->requirements().block > 1 ? kBlocks
                                                                   : kNumbers;
    std::vector<ParameterRange> ranges;
    std::vector<Tensor> gradients;
    for (const std::string& name : problem.parameters) {
      ParameterRange range;
      range.parameter = kernels::clone(tensor(problem.name + "/" + name, dtype));
      range.shape = range.parameter.shape();
      range.parameter = range.parameter.flatten();
      for (int pass = 0; pass < optimizer->requirements().passes; ++pass)
        range.sums.push_back(zeros(context_, {optimizer->sum_count(pass, range.shape)}, DType::f64));
      range.measured = range.sums;
      for (std::size_t i = 0; i < optimizer->state_names().size(); ++i)
        range.state.push_back(
            kernels::full(context_, range.parameter.shape(), optimizer->initial_state(i), range.parameter.dtype()));
      if (name.starts_with("free")) range.group = {.lr_factor = 0.5, .decay_factor = 0};
      for (const StateKind& kind : optimizer->parameter_state(range.shape, range.group))
        range.state.push_back(zeros(context_, {kind.count(range.parameter.numel())}, kind.dtype(dtype)));
      gradients.push_back(name == "still" ? zeros(context_, {50 * range.parameter.numel()}, dtype)
                                          : tensor(problem.name + "/" + name + "_gradients", dtype).flatten());
      ranges.push_back(range);
    }
    const StepCurves curves = make_curves(config, context_);
    StepInput input = {.step = kernels::make_step_state(context_)};
    if (const SharedNumber* shared = optimizer->shared_number())
      input.shared = testing::tensor_of(context_, {shared->initial}, {1}, DType::f64);
    History history{problem.parameters, std::vector<std::vector<double>>(ranges.size())};
    for (std::int64_t step = 0; step < 50; ++step) {
      kernels::add_tokens(input.step, 1);
      kernels::decide_step({.state = input.step, .curves = curves});
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        const std::int64_t numel = ranges[i].parameter.numel(), begin = problem.in_a_row ? step : step * numel;
        ranges[i].gradient = gradients[i].slice(0, begin, begin + numel);
      }
      for (int pass = 0; pass < optimizer->requirements().passes; ++pass) {
        optimizer->measure(pass, ranges, input);
        optimizer->settle(pass, ranges, input);
      }
      optimizer->update(ranges, input);
      optimizer->advance(input);
      if (std::find(std::begin(kStoredSteps), std::end(kStoredSteps), step + 1) == std::end(kStoredSteps)) continue;
      for (std::size_t i = 0; i < ranges.size(); ++i)
        for (const double value : doubles(ranges[i].parameter)) history.weights[i].push_back(value);
    }
    return history;
  }

 private:
  Context context_ = testing::context(1);
  SafetensorsFile file_{KEEL_SOURCE_DIR "/tests/golden/optimizers.safetensors"};
};

TEST(GoldenOptimizers, EveryCaseOfTheFileAndEveryOptimizerHasATest) {
  const OptimizerFile golden;
  std::set<std::string> stored, tested = {"problem", "matrices", "blocks"};
  for (const SafetensorsEntry& entry : golden.file().entries())
    stored.insert(entry.name.substr(0, entry.name.find('/')));
  std::set<std::string_view> types, known;
  for (const OptimizerCase& each : kOptimizerCases) {
    tested.insert(each.name);
    const std::string type = each.options.substr(each.options.find("type: ") + 6);
    types.insert(find_optimizer(type.substr(0, type.find(','))).name);
  }
  // The others: lbfgs.json, golden_sparse_adam_test.cpp, golden_muon_test.cpp,
  // golden_schedule_free_test.cpp.
  for (const OptimizerEntry& entry : optimizers())
    if (const auto needs = make_optimizer(entry)->requirements();
        !needs.closure && !needs.rows && !needs.matrices && !needs.averages)
      known.insert(entry.name);
  EXPECT_EQ(tested, stored);
  EXPECT_EQ(types, known);
}

TEST(GoldenOptimizers, FiftyStepsAreThoseOfTheOriginals) {
  const OptimizerFile golden;
  for (const OptimizerCase& each : kOptimizerCases)
    for (const DType dtype : {DType::f32, DType::f64}) {
      const OptimizerFile::History mine = golden.train(each, dtype);
      // The file holds fp32 numbers, so fp64 comes no nearer than their rounding. In fp32 a number at the border of two
      // codes of 8 bits may become the other one.
      const double bound = dtype == DType::f64 ? 1e-7 : each.name.find("8bit") == std::string::npos ? 1e-6 : 5e-6;
      for (std::size_t i = 0; i < mine.names.size(); ++i)
        EXPECT_LT(relative_error(mine.weights[i], doubles(golden.tensor(each.name + "/" + mine.names[i], DType::f64))),
                  bound)
            << each.name << '/' << mine.names[i] << " in " << name_of(dtype);
    }
}

}  // namespace
}  // namespace keel
