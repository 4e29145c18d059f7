// The table itself: every optimizer with its options, and how its settings follow from them.

#include "keel/optim/catalog.h"
#include "keel/optim/elementwise.h"
#include "keel/optim/lbfgs.h"

namespace keel {
namespace {

AdamSettings adam_settings(const OptimizerValues& o) {
  return {.beta1 = o.betas[0],
          .beta2 = o.betas[1],
          .epsilon = o.eps,
          .amsgrad = o.amsgrad,
          .maximize = o.maximize,
          .decoupled = true};
}

using Options = const OptimizerValues&;

AdamSettings adam_8bit_settings(Options o) {
  AdamSettings settings = adam_settings(o);
  settings.min_8bit_size = o.min_8bit_size;
  return settings;
}

// lr first; defaults are those of the libraries that the optimizers come from. Those with settings may round at random.
std::vector<OptimizerEntry> make_entries() {
  std::vector<OptimizerEntry> entries = {
      {"AdamW",
       "fuse_adam|FusedAdam|CPUAdam|DeepSpeedCPUAdam|adamw_torch|adamw_torch_fused",
       "Adam with decay of the weights themselves.",
       {{"lr", "1e-3"},
        {"betas", "[0.9, 0.999]"},
        {"eps", "1e-8"},
        {"weight_decay", "0.01"},
        {"amsgrad", "false"},
        {"maximize", "false"}},
       [](Options o) -> UpdateSettings { return adam_settings(o); }},
      {"SGD",
       "",
       "Gradient descent, with or without momentum.",
       {{"lr", "1e-3"},
        {"momentum", "0"},
        {"dampening", "0"},
        {"weight_decay", "0"},
        {"nesterov", "false"},
        {"maximize", "false"}},
       [](Options o) -> UpdateSettings {
         return SgdSettings{
             .momentum = o.momentum, .dampening = o.dampening, .nesterov = o.nesterov, .maximize = o.maximize};
       }},
      {"Adam",
       "",
       "Moving averages of the gradient and its square; decay is part of the gradient.",
       {{"lr", "1e-3"},
        {"betas", "[0.9, 0.999]"},
        {"eps", "1e-8"},
        {"weight_decay", "0"},
        {"amsgrad", "false"},
        {"maximize", "false"}},
       [](Options o) -> UpdateSettings {
         AdamSettings settings = adam_settings(o);
         settings.decoupled = false;
         return settings;
       }},
      {"HFAdamW",
       "hf_adamw|adamw_hf|transformers.AdamW",
       "AdamW as old Transformers have it: eps before the correction of the bias, decay after the update.",
       {{"lr", "1e-3"}, {"betas", "[0.9, 0.999]"}, {"eps", "1e-8"}, {"weight_decay", "0.01"}, {"correct_bias", "true"}},
       [](Options o) -> UpdateSettings {
         AdamSettings settings = adam_settings(o);
         settings.correct_bias = o.correct_bias;
         settings.epsilon_first = settings.decay_last = true;
         return settings;
       }},
      {"TFAdamW",
       "tf_adamw|AdamWeightDecay|BertAdam",
       "AdamW as TensorFlow's BERT has it: no correction of the bias.",
       {{"lr", "1e-3"}, {"betas", "[0.9, 0.999]"}, {"eps", "1e-6"}, {"weight_decay", "0.01"}, {"amsgrad", "false"}},
       [](Options o) -> UpdateSettings {
         AdamSettings settings = adam_settings(o);
         settings.correct_bias = false;
         return settings;
       }},
      {"SparseAdam",
       "sparse_adam",
       "Adam for embeddings whose gradients are kept as rows: only the rows that were used change. It takes no others.",
       {{"lr", "1e-3"}, {"betas", "[0.9, 0.999]"}, {"eps", "1e-8"}, {"maximize", "false"}},
       [](Options o) -> UpdateSettings {
         AdamSettings settings = adam_settings(o);
         settings.decoupled = false;
         settings.epsilon_first = true;
         return settings;
       },
       nullptr,
       {.rows = true}},
      {"Adamax",
       "",
       "Adam with a decaying maximum of gradients instead of their mean square.",
       {{"lr", "2e-3"}, {"betas", "[0.9, 0.999]"}, {"eps", "1e-8"}, {"weight_decay", "0"}, {"maximize", "false"}},
       [](Options o) -> UpdateSettings {
         return AdamaxSettings{.beta1 = o.betas[0], .beta2 = o.betas[1], .epsilon = o.eps, .maximize = o.maximize};
       }},
      {"NAdam",
       "",
       "Adam with Nesterov's momentum.",
       {{"lr", "2e-3"},
        {"betas", "[0.9, 0.999]"},
        {"eps", "1e-8"},
        {"weight_decay", "0"},
        {"momentum_decay", "4e-3"},
        {"decoupled_weight_decay", "false"},
        {"maximize", "false"}},
       [](Options o) -> UpdateSettings {
         return NAdamSettings{.beta1 = o.betas[0],
                              .beta2 = o.betas[1],
                              .epsilon = o.eps,
                              .momentum_decay = o.momentum_decay,
                              .decoupled = o.decoupled_weight_decay,
                              .maximize = o.maximize};
       }},
      {"RAdam",
       "",
       "Adam that trusts the mean square only once enough steps have made it.",
       {{"lr", "1e-3"},
        {"betas", "[0.9, 0.999]"},
        {"eps", "1e-8"},
        {"weight_decay", "0"},
        {"decoupled_weight_decay", "false"},
        {"maximize", "false"}},
       [](Options o) -> UpdateSettings {
         return RAdamSettings{.beta1 = o.betas[0],
                              .beta2 = o.betas[1],
                              .epsilon = o.eps,
                              .decoupled = o.decoupled_weight_decay,
                              .maximize = o.maximize};
       }},
      {"Adagrad",
       "",
       "Rates that fall with the sum of squared gradients.",
       {{"lr", "1e-2"},
        {"lr_decay", "0"},
        {"weight_decay", "0"},
        {"initial_accumulator", "0"},
        {"eps", "1e-10"},
        {"maximize", "false"}},
       [](Options o) -> UpdateSettings {
         return AdagradSettings{.lr_decay = o.lr_decay,
                                .initial_accumulator = o.initial_accumulator,
                                .epsilon = o.eps,
                                .maximize = o.maximize};
       }},
      {"Adadelta",
       "",
       "The gradient, times the size of past steps over the size of past gradients.",
       {{"lr", "1"}, {"rho", "0.9"}, {"eps", "1e-6"}, {"weight_decay", "0"}, {"maximize", "false"}},
       [](Options o) -> UpdateSettings {
         return AdadeltaSettings{.rho = o.rho, .epsilon = o.eps, .maximize = o.maximize};
       }},
      {"RMSprop",
       "",
       "Gradients divided by the root of their mean square.",
       {{"lr", "1e-2"},
        {"alpha", "0.99"},
        {"eps", "1e-8"},
        {"weight_decay", "0"},
        {"momentum", "0"},
        {"centered", "false"},
        {"maximize", "false"}},
       [](Options o) -> UpdateSettings {
         return RmspropSettings{.alpha = o.alpha,
                                .epsilon = o.eps,
                                .momentum = o.momentum,
                                .centered = o.centered,
                                .maximize = o.maximize};
       }},
      {"Rprop",
       "",
       "Steps that grow while a gradient keeps its sign.",
       {{"lr", "1e-2"}, {"etas", "[0.5, 1.2]"}, {"step_sizes", "[1e-6, 50]"}, {"maximize", "false"}},
       [](Options o) -> UpdateSettings {
         return RpropSettings{.shrink = o.etas[0],
                              .grow = o.etas[1],
                              .least = o.step_sizes[0],
                              .most = o.step_sizes[1],
                              .maximize = o.maximize};
       }},
      {"ASGD",
       "",
       "Descent with a falling rate, and an average of the weights.",
       {{"lr", "1e-2"},
        {"lambd", "1e-4"},
        {"alpha", "0.75"},
        {"t0", "1e6"},
        {"weight_decay", "0"},
        {"maximize", "false"}},
       [](Options o) -> UpdateSettings {
         return AsgdSettings{.lambd = o.lambd, .alpha = o.alpha, .t0 = o.t0, .maximize = o.maximize};
       }},
      {"Lion",
       "",
       "The sign of a mean of gradients.",
       {{"lr", "1e-4"}, {"betas", "[0.9, 0.99]"}, {"weight_decay", "0"}, {"maximize", "false"}},
       [](Options o) -> UpdateSettings {
         return LionSettings{.beta1 = o.betas[0], .beta2 = o.betas[1], .maximize = o.maximize};
       }},
      {"Adam8bit",
       "adam_8bit|adam_bnb_8bit",
       "AdamW8bit without decay; where there is one, it is of the weights themselves, as in bitsandbytes.",
       {{"lr", "1e-3"},
        {"betas", "[0.9, 0.999]"},
        {"eps", "1e-8"},
        {"weight_decay", "0"},
        {"min_8bit_size", "4096"},
        {"maximize", "false"}},
       [](Options o) -> UpdateSettings { return adam_8bit_settings(o); }},
      {"AdamW8bit",
       "adamw_8bit|adamw_bnb_8bit|bnb_8bit",
       "AdamW whose means are codes of 8 bits, but for embeddings and small parameters.",
       {{"lr", "1e-3"},
        {"betas", "[0.9, 0.999]"},
        {"eps", "1e-8"},
        {"weight_decay", "0.01"},
        {"min_8bit_size", "4096"},
        {"maximize", "false"}},
       [](Options o) -> UpdateSettings { return adam_8bit_settings(o); }},
      // eps and decay as in the paper's BERT and in apex (DeepSpeed: 1e-8 and 0), bounds as in DeepSpeed.
      {"LAMB",
       "Lamb|FusedLamb",
       "Adam's direction, as long as the weights of each parameter.",
       {{"lr", "1e-3"},
        {"betas", "[0.9, 0.999]"},
        {"eps", "1e-6"},
        {"weight_decay", "0.01"},
        {"correct_bias", "true"},
        {"max_coeff", "10"},
        {"min_coeff", "0.01"},
        {"adapt_without_decay", "true"}},
       [](Options o) -> UpdateSettings {
         return LambSettings{.beta1 = o.betas[0],
                             .beta2 = o.betas[1],
                             .epsilon = o.eps,
                             .max_coeff = o.max_coeff,
                             .min_coeff = o.min_coeff,
                             .correct_bias = o.correct_bias,
                             .adapt_without_decay = o.adapt_without_decay};
       }},
      {"LARS",
       "LARC|FusedLARS",
       "Gradient descent whose steps are a part of the weights' length; biases and norms descend as with SGD.",
       {{"lr", "1"},
        {"momentum", "0.9"},
        {"dampening", "0"},
        {"weight_decay", "0"},
        {"nesterov", "false"},
        {"trust_coefficient", "1e-3"},
        {"eps", "1e-8"}},
       [](Options o) -> UpdateSettings {
         return LarsSettings{.momentum = o.momentum,
                             .dampening = o.dampening,
                             .trust_coefficient = o.trust_coefficient,
                             .epsilon = o.eps,
                             .nesterov = o.nesterov};
       }},
      {"Adafactor",
       "",
       "Mean squares of matrices by row and column alone, and steps as long as the weights.",
       {{"lr", "1"},
        {"epsilons", "[1e-30, 1e-3]"},
        {"clip_threshold", "1"},
        {"decay_rate", "-0.8"},
        {"beta1", "0"},
        {"weight_decay", "0"},
        {"scale_parameter", "true"},
        {"relative_step", "true"},
        {"warmup_init", "false"}},
       [](Options o) -> UpdateSettings {
         return AdafactorSettings{.eps_gradient = o.epsilons[0],
                                  .eps_weight = o.epsilons[1],
                                  .clip_threshold = o.clip_threshold,
                                  .decay_rate = o.decay_rate,
                                  .beta1 = o.beta1,
                                  .scale_parameter = o.scale_parameter,
                                  .relative_step = o.relative_step,
                                  .warmup_init = o.warmup_init};
       }},
      {"ScheduleFreeAdamW",
       "AdamWScheduleFree|schedule_free_adamw|adamw_schedule_free",
       "AdamW that needs no falling rate: evaluations, exports and generation take the mean of the weights, which "
       "training runs ahead of. After a warm-up the rate stays as it is.",
       {{"lr", "2.5e-3"},
        {"betas", "[0.9, 0.999]"},
        {"eps", "1e-8"},
        {"weight_decay", "0"},
        {"weight_lr_power", "2"},
        {"r", "0"},
        {"maximize", "false"}},
       [](Options o) -> UpdateSettings {
         return ScheduleFreeSettings{.beta1 = o.betas[0],
                                     .beta2 = o.betas[1],
                                     .epsilon = o.eps,
                                     .weight_lr_power = o.weight_lr_power,
                                     .r = o.r,
                                     .maximize = o.maximize};
       },
       nullptr,
       {.averages = true}},
      // The momentum, decay and forms of PyTorch's Muon; AdamW's part as in both papers.
      {"Muon",
       "",
       "Momentum that is made orthogonal, of hidden matrices (packed layers part by part); AdamW for embeddings, "
       "heads, "
       "norms and biases.",
       {{"lr", "1e-3"},
        {"momentum", "0.95"},
        {"nesterov", "true"},
        {"weight_decay", "0.1"},
        {"betas", "[0.9, 0.95]"},
        {"eps", "1e-8"},
        {"matrices", "hidden"},
        {"matrix_scale", "match_rms_adamw"},
        {"newton_schulz_steps", "5"},
        {"products", "bf16"},
        {"adamw_lr_factor", "1"},
        {"maximize", "false"}},
       [](Options o) -> UpdateSettings {
         return MuonSettings{.momentum = o.momentum,
                             .nesterov = o.nesterov,
                             .maximize = o.maximize,
                             .newton_schulz_steps = o.newton_schulz_steps,
                             .products = o.products,
                             .scaling = o.matrix_scale,
                             .matrices = o.matrices,
                             .beta1 = o.betas[0],
                             .beta2 = o.betas[1],
                             .epsilon = o.eps,
                             .adamw_lr_factor = o.adamw_lr_factor};
       }},
      {"LBFGS",
       "L-BFGS",
       "Quasi-Newton steps: each evaluates the loss of the same batch several times, along directions that the changes "
       "of the gradient suggest. One group of all parameters, not clipped; no fp16.",
       {{"lr", "1"},
        {"max_iterations", "20"},
        {"max_evaluations", "0"},
        {"tolerance_gradient", "1e-7"},
        {"tolerance_change", "1e-9"},
        {"history", "100"},
        {"line_search", "none"}},
       nullptr,
       [](Options o) {
         return make_lbfgs({.max_iterations = o.max_iterations,
                            .max_evaluations = o.max_evaluations,
                            .tolerance_gradient = o.tolerance_gradient,
                            .tolerance_change = o.tolerance_change,
                            .history = o.history,
                            .strong_wolfe = o.line_search == LineSearchKind::strong_wolfe});
       },
       {.closure = true, .one_vector = true, .pure_gradient = true, .host_memory = true}},
  };
  for (OptimizerEntry& entry : entries)
    if (entry.settings != nullptr && !entry.requirements.averages)
      entry.options.push_back({"stochastic_rounding", "false"});
  return entries;
}

}  // namespace

std::span<const OptimizerEntry> optimizers() {
  static const std::vector<OptimizerEntry> entries = make_entries();
  return entries;
}

}  // namespace keel
