#include "keel/optim/schedule.h"

#include <algorithm>
#include <cmath>

#include "keel/runtime/error.h"

namespace keel {
namespace {

using P = ScheduleParameter;
using Form = ScheduleValue::Form;

const ScheduleKind& kind_of(int type) { return schedule_kinds()[static_cast<std::size_t>(type)]; }
bool is_sequence(const ScheduleKind& kind) { return kind.find(P::schedules) != nullptr && kind.find(P::milestones); }

// What `auto` stands for, where the numbers that were given and `total` are known.
double automatic(P parameter, const ScheduleNumbers& n, std::int64_t total) {
  switch (parameter) {
    case P::max_lr: return 1;
    case P::step_size_down: return n[P::step_size_up];
    case P::second_stairs: return n[P::first_stairs];
    case P::timescale: return n[P::warmup] > 0 ? n[P::warmup] : 10000;
    case P::stable: return n[P::steps] - n[P::warmup] - n[P::decay];
    case P::start_ratio: return n[P::warmup] > 0 ? 1 / n[P::warmup] : 1;
    default: return static_cast<double>(total);  // steps, T_max
  }
}

bool follows_total(P parameter) { return parameter == P::steps || parameter == P::t_max; }

// A ratio such as 0.07 of 100 steps is 7.000000000000001 in doubles.
double rounded_up(double steps) { return std::ceil(steps - 1e-9 * std::max(1.0, steps)); }

class Resolution {
 public:
  Resolution(const ScheduleSettings& settings, double base_rate, std::int64_t total)
      : settings_(settings), kind_(kind_of(settings.type)), base_rate_(base_rate), total_(total) {
    KEEL_CHECK(std::isfinite(base_rate) && base_rate > 0, "a schedule needs a base rate > 0, got ", base_rate);
    KEEL_CHECK(total >= 0, "a schedule of ", total, " steps");
    numbers.milestones = settings.milestones;
    check_values();
    if (!complaints.empty()) return;
    resolve();
    if (complaints.empty()) check_together();
    if (complaints.empty() && kind_.check != nullptr) kind_.check(numbers, complaints);
  }

  ScheduleNumbers numbers;
  ScheduleComplaints complaints;

 private:
  void complain(P parameter, std::string message) {
    complaints.push_back({std::string(schedule_parameter(parameter).name), std::move(message)});
  }

  void check_values() {
    for (const ScheduleUse& use : kind_.parameters) {
      if (use.parameter == P::milestones) {
        for (const std::int64_t milestone : settings_.milestones)
          if (milestone < 1) complain(use.parameter, concat("expects whole numbers >= 1, got ", milestone));
      } else if (!is_allowed(use, settings_[use.parameter])) {
        complain(use.parameter, concat("expects ", describe_schedule_values(use), ", got ",
                                       number_text(settings_[use.parameter].number)));
      }
    }
  }

  // Ratios are of `steps`, which therefore comes first; what is automatic may depend on everything else.
  void resolve() {
    for (const ScheduleUse& use : kind_.parameters) {
      const ScheduleValue& value = settings_[use.parameter];
      const bool is_rate = schedule_parameter(use.parameter).type == ScheduleValueType::rate;
      if (value.form == Form::automatic) {
        if (!follows_total(use.parameter)) continue;
        if (total_ == 0) complain(use.parameter, "is the number of all steps, which is not known here; give it");
        numbers[use.parameter] = automatic(use.parameter, numbers, total_);
      } else if (value.form == Form::ratio) {
        const double all = whole();
        if (all == 0) complain(use.parameter, "is a ratio of all steps, which are not known here; give a number");
        numbers[use.parameter] = rounded_up(value.number * all);
      } else {
        numbers[use.parameter] = is_rate ? value.number / base_rate_ : value.number;
      }
    }
    for (const ScheduleUse& use : kind_.parameters)
      if (settings_[use.parameter].form == Form::automatic && !follows_total(use.parameter))
        numbers[use.parameter] = automatic(use.parameter, numbers, total_);
  }

  double whole() const { return kind_.find(P::steps) != nullptr ? numbers[P::steps] : static_cast<double>(total_); }

  void check_together() {
    const bool has_steps = kind_.find(P::steps) != nullptr;
    if (kind_.find(P::warmup) != nullptr && whole() > 0 && numbers[P::warmup] > whole())
      complain(P::warmup, concat(number_text(numbers[P::warmup]), " warm-up steps do not fit into ",
                                 has_steps ? concat("the schedule's ", number_text(whole()))
                                           : concat(number_text(whole()), " steps")));
    if (kind_.find(P::min_lr) != nullptr && settings_[P::min_lr].number > base_rate_)
      complain(P::min_lr, concat(number_text(settings_[P::min_lr].number), " is above optimizer.lr ",
                                 number_text(base_rate_), "; the rate falls from lr to min_lr"));
    if (kind_.ends && static_cast<double>(total_) > numbers[P::steps])
      complain(P::steps,
               concat(kind_.name, " ends after ", number_text(numbers[P::steps]), " steps, and the run has ", total_));
  }

  const ScheduleSettings& settings_;
  const ScheduleKind& kind_;
  double base_rate_;
  std::int64_t total_;
};

// Steps that part `i` of a sequence lasts, 0 where the last one's end is not known; of a product all steps.
std::int64_t steps_of_part(const ScheduleSettings& settings, std::size_t i, std::int64_t total) {
  if (!is_sequence(kind_of(settings.type))) return total;
  const std::vector<std::int64_t>& ends = settings.milestones;
  const std::int64_t begin = i == 0 ? 0 : ends[i - 1], end = i < ends.size() ? ends[i] : total;
  return std::max<std::int64_t>(end - begin, 0);
}

}  // namespace

ScheduleComplaints check_schedule(const ScheduleSettings& settings, double base_rate, std::int64_t total) {
  ScheduleComplaints complaints = Resolution(settings, base_rate, total).complaints;
  const ScheduleKind& kind = kind_of(settings.type);
  if (!complaints.empty() || kind.find(P::schedules) == nullptr) return complaints;
  const std::size_t count = settings.parts.size();
  if (count == 0) return {{"schedules", "lists no schedule"}};
  if (is_sequence(kind) && settings.milestones.size() + 1 != count)
    return {{"milestones", concat("expects ", count - 1, " steps, one between each of the ", count,
                                  " schedules and the next, got ", settings.milestones.size())}};
  int with_momentum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t steps = steps_of_part(settings, i, total);
    ScheduleComplaints inner = check_schedule(settings.parts[i], base_rate, steps);
    for (ScheduleComplaint& complaint : inner)
      complaints.push_back({concat("schedules[", i, "].", complaint.where), std::move(complaint.message)});
    if (inner.empty() && RateSchedule(settings.parts[i], base_rate, steps).cycles_momentum()) ++with_momentum;
  }
  if (!is_sequence(kind) && with_momentum > 1)
    complaints.push_back({"schedules", "more than one of them cycles the momentum; which one shall hold?"});
  return complaints;
}

RateSchedule::RateSchedule(const ScheduleSettings& settings, double base_rate, std::int64_t total)
    : type_(settings.type) {
  const ScheduleComplaints complaints = check_schedule(settings, base_rate, total);
  if (!complaints.empty()) throw Error(concat(kind().name, ": ", complaints[0].where, ": ", complaints[0].message));
  numbers_ = Resolution(settings, base_rate, total).numbers;
  for (std::size_t i = 0; i < settings.parts.size(); ++i)
    parts_.emplace_back(settings.parts[i], base_rate, steps_of_part(settings, i, total));
}

const ScheduleKind& RateSchedule::kind() const { return kind_of(type_); }

std::pair<const RateSchedule*, std::int64_t> RateSchedule::part_at(std::int64_t done) const {
  const auto& ends = numbers_.milestones;
  const auto next = std::upper_bound(ends.begin(), ends.end(), done);
  return {&parts_[static_cast<std::size_t>(next - ends.begin())], next == ends.begin() ? done : done - *(next - 1)};
}

double RateSchedule::factor(std::int64_t done) const {
  KEEL_CHECK(done >= 0, kind().name, ": there is no rate after ", done, " steps");
  if (!parts_.empty()) {
    if (is_sequence(kind())) {
      const auto [part, since] = part_at(done);
      return part->factor(since);
    }
    double product = 1;
    for (const RateSchedule& part : parts_) product *= part.factor(done);
    return product;
  }
  const auto t = static_cast<double>(done);
  KEEL_CHECK(!kind().ends || t <= numbers_[P::steps], kind().name, ": there is no rate after ", done,
             " steps; it ends after ", number_text(numbers_[P::steps]));
  return kind().factor(numbers_, t);
}

bool RateSchedule::cycles_momentum() const {
  if (kind().momentum != nullptr) return numbers_[P::cycle_momentum] != 0;
  return std::any_of(parts_.begin(), parts_.end(), [](const RateSchedule& part) { return part.cycles_momentum(); });
}

std::optional<double> RateSchedule::momentum(std::int64_t done) const {
  if (!cycles_momentum()) return std::nullopt;
  if (parts_.empty()) return kind().momentum(numbers_, static_cast<double>(done));
  if (is_sequence(kind())) {
    const auto [part, since] = part_at(done);
    return part->momentum(since);
  }
  for (const RateSchedule& part : parts_)
    if (const auto momentum = part.momentum(done)) return momentum;
  return std::nullopt;
}

std::int64_t RateSchedule::settles() const {
  if (is_sequence(kind())) {
    const std::int64_t last = parts_.back().settles(),
                       begin = numbers_.milestones.empty() ? 0 : numbers_.milestones.back();
    return last > kNever - begin ? kNever : begin + last;
  }
  std::int64_t latest = 0;
  for (const RateSchedule& part : parts_) latest = std::max(latest, part.settles());
  if (!parts_.empty()) return latest;
  return kind().settles == nullptr ? kNever : static_cast<std::int64_t>(kind().settles(numbers_));
}

double RateSchedule::layer_factor(double depth, double deepest) const {
  double factor = 1;
  for (const RateSchedule& part : parts_) factor *= part.layer_factor(depth, deepest);
  if (kind().find(P::layer_decay) != nullptr) factor = std::pow(numbers_[P::layer_decay], deepest - depth);
  return factor;
}

}  // namespace keel
