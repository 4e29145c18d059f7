// The options of an optimizer that nobody gave: each takes the default that the catalog says.

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "keel/optim/catalog.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

template <class T>
void read_number(std::string_view text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  KEEL_CHECK(error == std::errc() && end == text.data() + text.size(), "the default '", text, "' is no number");
}

void read_default(std::string_view text, double& value) { read_number(text, value); }
void read_default(std::string_view text, int& value) { read_number(text, value); }
void read_default(std::string_view text, std::int64_t& value) { read_number(text, value); }
void read_default(std::string_view text, bool& value) {
  value = text == "true";
  KEEL_CHECK(value || text == "false", "the default '", text, "' is neither true nor false");
}
void read_default(std::string_view text, LineSearchKind& value) {
  value = text == "strong_wolfe" ? LineSearchKind::strong_wolfe : LineSearchKind::none;
  KEEL_CHECK(value != LineSearchKind::none || text == "none", "the default '", text, "' is no line search");
}
// The name whose place among "a|b" is the value's number.
template <class Choice>
void read_choice(std::string_view text, std::string_view names, Choice& value) {
  for (unsigned char number = 0; !names.empty(); ++number) {
    const std::size_t end = std::min(names.find('|'), names.size());
    if (names.substr(0, end) == text) {
      value = static_cast<Choice>(number);
      return;
    }
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  throw Error(concat("the default '", text, "' is no choice"), ErrorKind::internal);
}
void read_default(std::string_view text, MuonProducts& value) { read_choice(text, kMuonProducts, value); }
void read_default(std::string_view text, MuonScale& value) { read_choice(text, kMuonScales, value); }
void read_default(std::string_view text, MuonMatrices& value) { read_choice(text, kMuonMatrices, value); }
// "[0.9, 0.999]"
void read_default(std::string_view text, std::array<double, 2>& value) {
  const std::size_t comma = text.find(", ");
  read_number(text.substr(1, comma - 1), value[0]);
  read_number(text.substr(comma + 2, text.size() - comma - 3), value[1]);
}

// Calls f(name, value, option) for every option of any optimizer.
template <class F>
void for_each_option(OptimizerValues& values, const OptimizerOptions& options, const F& f) {
#define KEEL_OPTION(name) f(#name, values.name, options.name)
  KEEL_OPTION(betas);
  KEEL_OPTION(eps);
  KEEL_OPTION(weight_decay);
  KEEL_OPTION(momentum);
  KEEL_OPTION(dampening);
  KEEL_OPTION(nesterov);
  KEEL_OPTION(maximize);
  KEEL_OPTION(amsgrad);
  KEEL_OPTION(correct_bias);
  KEEL_OPTION(decoupled_weight_decay);
  KEEL_OPTION(momentum_decay);
  KEEL_OPTION(lr_decay);
  KEEL_OPTION(initial_accumulator);
  KEEL_OPTION(rho);
  KEEL_OPTION(alpha);
  KEEL_OPTION(centered);
  KEEL_OPTION(etas);
  KEEL_OPTION(step_sizes);
  KEEL_OPTION(lambd);
  KEEL_OPTION(t0);
  KEEL_OPTION(max_coeff);
  KEEL_OPTION(min_coeff);
  KEEL_OPTION(trust_coefficient);
  KEEL_OPTION(adapt_without_decay);
  KEEL_OPTION(epsilons);
  KEEL_OPTION(clip_threshold);
  KEEL_OPTION(decay_rate);
  KEEL_OPTION(beta1);
  KEEL_OPTION(scale_parameter);
  KEEL_OPTION(relative_step);
  KEEL_OPTION(warmup_init);
  KEEL_OPTION(min_8bit_size);
  KEEL_OPTION(stochastic_rounding);
  KEEL_OPTION(max_iterations);
  KEEL_OPTION(max_evaluations);
  KEEL_OPTION(history);
  KEEL_OPTION(tolerance_gradient);
  KEEL_OPTION(tolerance_change);
  KEEL_OPTION(line_search);
  KEEL_OPTION(newton_schulz_steps);
  KEEL_OPTION(products);
  KEEL_OPTION(matrix_scale);
  KEEL_OPTION(matrices);
  KEEL_OPTION(adamw_lr_factor);
  KEEL_OPTION(weight_lr_power);
  KEEL_OPTION(r);
#undef KEEL_OPTION
}

}  // namespace

OptimizerValues with_defaults(const OptimizerEntry& entry, const OptimizerOptions& options) {
  OptimizerValues values;
  for_each_option(values, options, [&](std::string_view name, auto& value, const auto& option) {
    const OptionDefault* const standard = entry.find(name);
    KEEL_CHECK(standard != nullptr || !option, entry.name, " has no option ", name);
    if (option) value = *option;
    else if (standard != nullptr) read_default(standard->value, value);
  });
  return values;
}

}  // namespace keel
