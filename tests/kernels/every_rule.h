#pragma once
// Every update rule in every form that computes something of its own, for laws that hold for all of them.

#include <string>
#include <utility>
#include <vector>

#include "keel/kernels/update.h"

namespace keel::testing {

struct RuleCase {
  std::string name;
  UpdateSettings settings;
  // The decay of weights that decay, if the rule knows decay at all.
  double decay() const { return decays(settings) ? 0.1 : 0; }
};

// What the elements of a first step share: the number that the rule begins with, or squares of norms as they might be.
inline std::vector<double> first_shared(const UpdateSettings& settings) {
  if (const SharedNumber* shared = shared_number(settings)) return {shared->initial};
  return std::vector<double>(static_cast<std::size_t>(norm_count(settings)), 2.5);
}

inline std::vector<RuleCase> every_rule() {
  return {
      {"sgd", SgdSettings{}},
      {"sgd with momentum", SgdSettings{.momentum = 0.9, .dampening = 0.3}},
      {"sgd of Nesterov", SgdSettings{.momentum = 0.9, .nesterov = true, .maximize = true}},
      {"adam", AdamSettings{.beta2 = 0.95}},
      {"adam with amsgrad", AdamSettings{.beta2 = 0.5, .amsgrad = true, .maximize = true}},
      {"adamw", AdamSettings{.decoupled = true}},
      {"adamw with amsgrad", AdamSettings{.beta2 = 0.5, .amsgrad = true, .decoupled = true}},
      {"adamw of Transformers", AdamSettings{.decoupled = true, .epsilon_first = true, .decay_last = true}},
      {"adamw of TensorFlow", AdamSettings{.epsilon = 1e-6, .decoupled = true, .correct_bias = false}},
      {"adamw in 8 bits", AdamSettings{.decoupled = true, .min_8bit_size = 256}},
      {"adamax", AdamaxSettings{}},
      {"nadam", NAdamSettings{}},
      {"nadam, decoupled", NAdamSettings{.momentum_decay = 0.1, .decoupled = true, .maximize = true}},
      {"radam", RAdamSettings{}},
      {"radam, decoupled", RAdamSettings{.beta1 = 0.8, .beta2 = 0.9, .decoupled = true}},
      {"adagrad", AdagradSettings{.lr_decay = 0.1, .initial_accumulator = 0.5}},
      {"adadelta", AdadeltaSettings{}},
      {"rmsprop", RmspropSettings{}},
      {"rmsprop with momentum", RmspropSettings{.alpha = 0.9, .momentum = 0.9}},
      {"rmsprop, centered", RmspropSettings{.alpha = 0.9, .centered = true}},
      {"rmsprop with both", RmspropSettings{.alpha = 0.9, .epsilon = 1e-3, .momentum = 0.9, .centered = true}},
      {"rprop", RpropSettings{}},
      {"asgd", AsgdSettings{.lambd = 0.5, .alpha = 0.6, .t0 = 2}},
      {"lion", LionSettings{}},
      {"lamb", LambSettings{}},
      {"lamb, as apex has it", LambSettings{.correct_bias = false, .adapt_without_decay = false}},
      {"lars", LarsSettings{.dampening = 0.2}},
      {"lars of Nesterov", LarsSettings{.nesterov = true}},
      {"lars without momentum", LarsSettings{.momentum = 0}},
      {"schedule-free", ScheduleFreeSettings{}},
      {"schedule-free, by steps and rates", ScheduleFreeSettings{.beta1 = 0.5, .weight_lr_power = 0.5, .r = 1.5}},
      {"muon", MuonSettings{}},
      {"muon in fp32, of every matrix", MuonSettings{.nesterov = false,
                                                     .products = MuonProducts::fp32,
                                                     .scaling = MuonScale::original,
                                                     .matrices = MuonMatrices::all}},
      {"adafactor", AdafactorSettings{}},
      {"adafactor with a mean", AdafactorSettings{.clip_threshold = 0.5, .beta1 = 0.9, .relative_step = false}},
      {"adafactor, warming up", AdafactorSettings{.decay_rate = -0.5, .scale_parameter = false, .warmup_init = true}},
  };
}

}  // namespace keel::testing
