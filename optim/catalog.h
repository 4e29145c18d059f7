#pragma once
// The table of all optimizers: names and spellings, options with their defaults, and how each is made.
//
// Configuration keys, documentation and dispatch come from it. A new optimizer that treats each element for itself is a
// rule (keel/kernels/rules/rule.h) and an entry here.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "keel/optim/optimizer.h"

namespace keel {

struct UpdateSettings;  // keel/kernels/update.h

enum class LineSearchKind : unsigned char { none, strong_wolfe };
enum class MuonProducts : unsigned char;  // keel/kernels/rules/muon.h
enum class MuonScale : unsigned char;
enum class MuonMatrices : unsigned char;
// Their names, in order.
inline constexpr std::string_view kMuonProducts = "bf16|fp32", kMuonScales = "match_rms_adamw|original",
                                  kMuonMatrices = "hidden|all|none";

// Every option of any optimizer. Of<T> is T or std::optional<T>.
template <template <class> class Of>
struct OptionsOf {
  Of<std::array<double, 2>> betas = {};
  Of<double> eps = {};
  Of<double> weight_decay = {};
  Of<double> momentum = {}, dampening = {};
  Of<bool> nesterov = {}, maximize = {}, amsgrad = {};
  Of<bool> correct_bias = {};
  Of<bool> decoupled_weight_decay = {};
  Of<double> momentum_decay = {};
  Of<double> lr_decay = {}, initial_accumulator = {};
  Of<double> rho = {}, alpha = {};
  Of<bool> centered = {};
  Of<std::array<double, 2>> etas = {}, step_sizes = {};
  Of<double> lambd = {}, t0 = {};
  Of<double> max_coeff = {}, min_coeff = {}, trust_coefficient = {};
  Of<bool> adapt_without_decay = {};
  Of<std::array<double, 2>> epsilons = {};
  Of<double> clip_threshold = {}, decay_rate = {}, beta1 = {};
  Of<bool> scale_parameter = {}, relative_step = {}, warmup_init = {};
  Of<std::int64_t> min_8bit_size = {};
  Of<bool> stochastic_rounding = {};
  Of<int> max_iterations = {}, max_evaluations = {}, history = {};
  Of<double> tolerance_gradient = {}, tolerance_change = {};
  Of<LineSearchKind> line_search = {};
  Of<int> newton_schulz_steps = {};
  Of<MuonProducts> products = {};
  Of<MuonScale> matrix_scale = {};
  Of<MuonMatrices> matrices = {};
  Of<double> adamw_lr_factor = {};
  Of<double> weight_lr_power = {}, r = {};
  bool operator==(const OptionsOf&) const = default;
};
// What a program sets; the rest is the optimizer's defaults.
using OptimizerOptions = OptionsOf<std::optional>;
// What holds in the end. Members that an optimizer does not have keep what they are.
using OptimizerValues = OptionsOf<std::type_identity_t>;

// An option as configurations call it, and its default, as YAML.
struct OptionDefault {
  std::string_view option, value;
};

struct OptimizerEntry {
  std::string_view name;
  std::string_view aliases;  // other programs' words, "a|b"; case, - and _ never count
  std::string_view summary;
  std::vector<OptionDefault> options;  // lr among them
  UpdateSettings (*settings)(const OptimizerValues&);
  // An optimizer that needs a closure has this instead of settings; it has one group, and treats all parameters alike.
  std::unique_ptr<Optimizer> (*make)(const OptimizerValues&) = nullptr;
  // An optimizer that was made says the others.
  SettledRequirements requirements = {};

  const OptionDefault* find(std::string_view option) const;  // null: it has no such option
  bool has(std::string_view option) const { return find(option) != nullptr; }
};

// In the order of documentation; the first is the default.
std::span<const OptimizerEntry> optimizers();

// By name or alias. An Error that lists the names, the nearest last, where there is none.
const OptimizerEntry& find_optimizer(std::string_view name);

// The options that are set, and the optimizer's defaults for the others. An Error where it has not an option that is
// set.
OptimizerValues with_defaults(const OptimizerEntry& entry, const OptimizerOptions& options);

// As in make_optimizer(find_optimizer("Adam"), {.weight_decay = 0.1}). `seed` is that of stochastic rounding. Throws an
// Error where the options make no sense together.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerEntry& entry, const OptimizerOptions& options = {},
                                          std::uint64_t seed = 0);
// `variants` are the values of groups that have some of their own (ParameterGroup::variant).
std::unique_ptr<Optimizer> make_optimizer(const OptimizerEntry& entry, const OptimizerValues& values,
                                          std::uint64_t seed, std::span<const OptimizerValues> variants);

}  // namespace keel
