#pragma once
// The table of all optimizers: names and spellings, options with their defaults, and how each is made.
//
// Configuration keys, documentation and dispatch come from it. A new optimizer that treats each element for itself is a
// rule (keel/kernels/rules/rule.h) and an entry here.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "keel/optim/optimizer.h"

namespace keel {

struct UpdateSettings;  // keel/kernels/update.h

// Every option of any optimizer; members that one does not have keep what they are.
struct OptimizerOptions {
  std::array<double, 2> betas = {};
  double eps = 0;
  double weight_decay = 0;
  double momentum = 0, dampening = 0;
  bool nesterov = false, maximize = false, amsgrad = false;
  bool correct_bias = false;
  bool decoupled_weight_decay = false;
  double momentum_decay = 0;
  double lr_decay = 0, initial_accumulator = 0;
  double rho = 0, alpha = 0;
  bool centered = false;
  std::array<double, 2> etas = {}, step_sizes = {};
  double lambd = 0, t0 = 0;
  double max_coeff = 0, min_coeff = 0, trust_coefficient = 0;
  bool adapt_without_decay = false;
  std::array<double, 2> epsilons = {};
  double clip_threshold = 0, decay_rate = 0, beta1 = 0;
  bool scale_parameter = false, relative_step = false, warmup_init = false;
  std::int64_t min_8bit_size = 0;
  bool stochastic_rounding = false;
  int max_iterations = 0, max_evaluations = 0, history = 0;
  double tolerance_gradient = 0, tolerance_change = 0;
  enum class LineSearch : unsigned char { none, strong_wolfe };
  LineSearch line_search = LineSearch::none;
  bool operator==(const OptimizerOptions&) const = default;
};

// An option as configurations call it, and its default, as YAML.
struct OptionDefault {
  std::string_view option, value;
};

struct OptimizerEntry {
  std::string_view name;
  std::string_view aliases;  // other programs' words, "a|b"; case, - and _ never count
  std::string_view summary;
  std::vector<OptionDefault> options;  // lr among them
  UpdateSettings (*settings)(const OptimizerOptions&);
  // An optimizer that needs a closure has this instead of settings; it has one group, and treats all parameters alike.
  std::unique_ptr<Optimizer> (*make)(const OptimizerOptions&) = nullptr;
  bool takes_rows = false;  // Optimizer::takes_rows()

  bool has(std::string_view option) const;
};

// In the order of documentation; the first is the default.
std::span<const OptimizerEntry> optimizers();

// By name or alias. An Error that lists the names, the nearest last, where there is none.
const OptimizerEntry& find_optimizer(std::string_view name);

// `seed` is that of stochastic rounding; `variants` are the options of groups that have some of their own
// (ParameterGroup::variant). Throws an Error where the options make no sense together.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerEntry& entry, const OptimizerOptions& options,
                                          std::uint64_t seed, std::span<const OptimizerOptions> variants = {});

}  // namespace keel
