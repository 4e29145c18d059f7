#pragma once
// What an optimizer does to numbers: updates of flat ranges, norms, finite checks.

#include <array>
#include <variant>

#include "keel/kernels/rules/adadelta.h"
#include "keel/kernels/rules/adafactor.h"
#include "keel/kernels/rules/adagrad.h"
#include "keel/kernels/rules/adam.h"
#include "keel/kernels/rules/adamax.h"
#include "keel/kernels/rules/asgd.h"
#include "keel/kernels/rules/lamb.h"
#include "keel/kernels/rules/lars.h"
#include "keel/kernels/rules/lion.h"
#include "keel/kernels/rules/muon.h"
#include "keel/kernels/rules/nadam.h"
#include "keel/kernels/rules/radam.h"
#include "keel/kernels/rules/rmsprop.h"
#include "keel/kernels/rules/rprop.h"
#include "keel/kernels/rules/schedule_free.h"
#include "keel/kernels/rules/sgd.h"
#include "keel/kernels/step_state.h"
#include "keel/runtime/tensor.h"

namespace keel {

// The settings of one rule. This is the one list of rules; keel/kernels/rules/rule.h says what one consists of. It has
// a name of its own, so that headers can declare it without including every rule.
struct UpdateSettings
    : std::variant<SgdSettings, AdamSettings, AdamaxSettings, NAdamSettings, RAdamSettings, AdagradSettings,
                   AdadeltaSettings, RmspropSettings, RpropSettings, AsgdSettings, LionSettings, LambSettings,
                   LarsSettings, AdafactorSettings, MuonSettings, ScheduleFreeSettings> {
  using variant::variant;
};

// std::visit of the rule. Libraries before that of g++ 11.3 do not take what derives from a variant.
template <class F>
decltype(auto) visit_rule(F&& f, const UpdateSettings& settings) {
  return std::visit(std::forward<F>(f), static_cast<const UpdateSettings::variant&>(settings));
}

// The most numbers that a rule keeps for each weight.
inline constexpr std::size_t kMostKept = 4;

// Flat dense tensors of n elements. The learning rate, the count of steps and the factor on gradients are those of the
// step state; nothing changes when it says that the step is not taken.
struct UpdateArgs {
  Tensor parameter;  // the model's copy, any floating dtype; written
  Tensor master;     // f32; undefined when `parameter` is f32 (or f64) itself; see `stochastic_rounding`
  Tensor gradient;   // f32 or the parameter's dtype
  std::array<Tensor, kMostKept> state = {};  // as many as the settings name: f32 (f64 for an f64 parameter); written
  // Where scales are given, each state is codes of 8 bits, u8, with a scale, f32 (f64 for f64), for each kStateBlock
  // elements from the first on: keel/kernels/dynamic_map.h. Only for rules with has_codes(); written.
  std::array<Tensor, kMostKept> scales = {};
  Tensor step;  // a state that decide_step() has written
  // f64: the number that all elements share (1), where the settings have one; or the squares of the norms
  // (norm_count()) that measure_norms() has found of the parts of a parameter, added up.
  Tensor shared = {};
  UpdateSettings settings;
  RangeSettings range = {};
  // The rows of a table that are read and written: i64, ascending, each once, in the processor's memory. The gradient
  // then holds these rows alone, (rows, width), and the other tensors the whole table. Undefined: all elements.
  Tensor rows = {};
  // A bf16 or f16 parameter is rounded up or down at random (keel/kernels/stochastic_rounding.h), and needs no master:
  // without one it holds the weights itself. Its element i draws number first + i of the step's stream, so that the
  // bits do not depend on how the parameters are cut into ranges.
  bool stochastic_rounding = false;
  std::uint64_t seed = 0;
  std::int64_t first = 0;
};

// After the updates of a step: the shared number, f64 (1), becomes that of the next one; unless the step is not taken.
struct AdvanceArgs {
  Tensor shared, step;
  UpdateSettings settings;
};

// What the settings ask for: the states kept for each weight, what state `kind` begins as, and the number that all
// elements share.
std::vector<std::string_view> state_names(const UpdateSettings& settings);
double initial_state(const UpdateSettings& settings, std::size_t kind);
const SharedNumber* shared_number(const UpdateSettings& settings);  // null: none
// How many norms over whole parameters the rule needs.
int norm_count(const UpdateSettings& settings);
// Whether the rule updates single rows of a table.
bool takes_rows(const UpdateSettings& settings);
// What is wrong with the settings; empty: nothing.
std::string problem_of(const UpdateSettings& settings);
// Whether the states may be kept in 8 bits.
bool has_codes(const UpdateSettings& settings);
// Whether weights decay under the rule at all.
bool decays(const UpdateSettings& settings);

namespace kernels {

void update(const UpdateArgs& args);
void advance_shared(const AdvanceArgs& args);
// Measures the rule's norms: `squares`, f64 (norm_count()), become sums over the elements, in fp64 and in a fixed
// order. Nothing else changes, and args.shared is not read. Nothing happens when the step is not taken.
void measure_norms(const UpdateArgs& args, const Tensor& squares);
// Sum of squares in fp64, by fixed chunks in order: the same bits at any thread count. Waits for the device.
double sum_of_squares(const Tensor& x);
bool all_finite(const Tensor& x);

}  // namespace kernels
}  // namespace keel
