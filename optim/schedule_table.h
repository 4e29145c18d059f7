#pragma once
// The table of all learning-rate schedules: their names, parameters and formulas.
//
// Configuration keys, messages, docs and dispatch are made from it. A new schedule is a formula in optim/schedules/ and
// a row in schedule_table.cpp; a new parameter is an enumerator here and a row there.

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

enum class ScheduleParameter : unsigned char {
  steps,
  warmup,
  warmup_type,
  constant,
  stable,
  decay,
  decay_type,
  min_lr,
  base_lr,
  max_lr,
  min_ratio,
  start_ratio,
  cycles,
  power,
  timescale,
  cycle,
  layer_decay,
  step_size,
  milestones,
  gamma,
  factor,
  start_factor,
  end_factor,
  total_iters,
  t_max,
  t_0,
  t_mult,
  step_size_up,
  step_size_down,
  mode,
  pct_start,
  anneal,
  div_factor,
  final_div_factor,
  three_phase,
  cycle_momentum,
  base_momentum,
  max_momentum,
  first_stairs,
  second_stairs,
  decay_step_size,
  decay_lr_rate,
  decay_momentum_rate,
  step_rate,
  staircase,
  schedules
};
inline constexpr std::size_t kScheduleParameters = static_cast<std::size_t>(ScheduleParameter::schedules) + 1;

// What a parameter was set to. A flag is 0 or 1, a choice its place in the list.
struct ScheduleValue {
  enum class Form : unsigned char { number, ratio, automatic };
  double number = 0;
  Form form = Form::number;  // ratio: of all steps; automatic: see the parameter's help
  bool operator==(const ScheduleValue&) const = default;
};

// The parameters of one schedule, or of several (sequence, product), as a configuration has them.
struct ScheduleSettings {
  int type = 0;  // a row of schedule_kinds()
  std::array<ScheduleValue, kScheduleParameters> values = {};
  std::vector<std::int64_t> milestones = {};
  std::vector<ScheduleSettings> parts = {};
  ScheduleValue& operator[](ScheduleParameter p) { return values[static_cast<std::size_t>(p)]; }
  const ScheduleValue& operator[](ScheduleParameter p) const { return values[static_cast<std::size_t>(p)]; }
  bool operator==(const ScheduleSettings&) const = default;
};

// The numbers that a formula reads: `auto` and ratios are resolved, rates are divided by the base rate.
struct ScheduleNumbers {
  std::array<double, kScheduleParameters> values = {};
  std::vector<std::int64_t> milestones = {};
  double& operator[](ScheduleParameter p) { return values[static_cast<std::size_t>(p)]; }
  double operator[](ScheduleParameter p) const { return values[static_cast<std::size_t>(p)]; }
  bool operator==(const ScheduleNumbers&) const = default;
};

struct ScheduleLimits {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;
};

enum class ScheduleValueType : unsigned char {
  number,
  rate,
  whole,
  count_or_ratio,
  flag,
  choice,
  milestones,
  schedules
};

struct ScheduleParameterRow {
  std::string_view name;  // the key
  ScheduleValueType type;
  ScheduleLimits limits;
  std::string_view help;                // one sentence; what `auto` means
  std::string_view aliases = {};        // "eta_min|lr_end": other programs' names for it, which are read as well
  std::string_view ratio_aliases = {};  // names that say that the number is a ratio of all steps
};

// A parameter of one schedule.
struct ScheduleUse {
  ScheduleParameter parameter;
  std::string_view standard;      // as written; empty: it must be given
  std::string_view choices = {};  // "log|linear"
  bool allows_auto() const { return standard == "auto"; }
};

// Something that does not fit together.
struct ScheduleComplaint {
  std::string where;  // "warmup", or "schedules[1].warmup"
  std::string message;
};
using ScheduleComplaints = std::vector<ScheduleComplaint>;

struct ScheduleKind {
  std::string_view name;
  std::string_view aliases;  // other spellings of the type: "CosineWithWarmup|..."
  std::string_view source;
  std::string_view formula;  // of the factor on the base rate, after t steps
  std::span<const ScheduleUse> parameters;
  double (*factor)(const ScheduleNumbers& numbers, double t);              // null: made of other schedules
  double (*momentum)(const ScheduleNumbers& numbers, double t) = nullptr;  // where cycle_momentum is on
  // The step from which the factor stays; null: it never does, or its parts know.
  double (*settles)(const ScheduleNumbers& numbers) = nullptr;
  bool ends = false;  // there is no rate after `steps`
  void (*check)(const ScheduleNumbers& numbers, ScheduleComplaints& complaints) = nullptr;

  const ScheduleUse* find(ScheduleParameter parameter) const;
};

std::span<const ScheduleKind> schedule_kinds();
const ScheduleParameterRow& schedule_parameter(ScheduleParameter parameter);

// Index of the row with that name or alias; an unknown name is an Error that says the nearest.
int find_schedule(std::string_view name);

// From text and back: "0.1", "100", "auto", "true", "linear". Throws Error ("expects a number > 0, got 'x'").
ScheduleValue read_schedule_value(const ScheduleUse& use, std::string_view text);
std::string schedule_value_text(const ScheduleUse& use, const ScheduleValue& value);
// "a number > 0", "a whole number >= 0, or a ratio of all steps from 0.0 to 1.0".
std::string describe_schedule_values(const ScheduleUse& use);
bool is_allowed(const ScheduleUse& use, const ScheduleValue& value);

// The shortest text that reads back as the same number.
std::string number_text(double value);

// A schedule with every default that it has; what has none is 0 or empty, and is to be set.
ScheduleSettings default_schedule(std::string_view name);

// The parts of "a|b|c"; none for an empty text.
std::vector<std::string_view> schedule_words(std::string_view list);

}  // namespace keel
