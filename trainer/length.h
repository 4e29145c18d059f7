#pragma once
// How long a run is, and how far apart things are that it does: in steps, in epochs of its data, or in parts of the
// run.

#include <cstdint>
#include <string>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

struct Config;

class Length {
 public:
  constexpr Length() = default;
  constexpr Length(std::int64_t steps) : steps_(steps), distance_(static_cast<double>(steps)) {}
  // Of no use until measure() has said how many steps they are.
  static Length of_epochs(double epochs);
  static Length of_run(double percent);
  // "500", "500 steps", "2 epochs", "0.5 epochs", "epoch", "10%" (of the run); units also as st, sts, step, ep, eps, in
  // any case. An Error for anything else; epochs are above 0, steps whole and at least 0, parts above 0 and at most
  // 100%.
  static Length parse(std::string_view text);

  bool is_none() const { return steps_ == 0 && !has_unit(); }
  double epochs() const { return epochs_; }      // 0: it is in something else
  double percent() const { return percent_; }    // of the run; likewise
  std::int64_t steps() const { return steps_; }  // likewise
  bool is_measured() const { return is_none() || distance_ > 0; }
  bool has_unit() const { return epochs_ > 0 || percent_ > 0; }
  // "500", "0.5 epochs", "10%".
  std::string text() const;

  void measure(double steps_per_epoch, std::int64_t run_steps);
  // Those below are an Error where it has a unit and was not measured.
  // The first step that reaches its end; 0: none.
  std::int64_t last_step() const;
  // Whether one of its multiples ends with this step, counted from 1. Those of epochs end with the first step that
  // reaches them.
  bool is_due(std::int64_t step) const;
  // The last step before this one at which one did; 0: none.
  std::int64_t due_before(std::int64_t step) const;
  // Whether one ends behind step `after` and not behind `step`.
  bool is_due_between(std::int64_t after, std::int64_t step) const;

  bool operator==(const Length& other) const {
    return steps_ == other.steps_ && epochs_ == other.epochs_ && percent_ == other.percent_;
  }

 private:
  void check_measured() const;

  std::int64_t steps_ = 0;
  double epochs_ = 0, percent_ = 0;
  double distance_ = 0;  // in steps; 0: not measured
};

// Full epochs that have passed after so many steps. An epoch that ends inside a step counts with it.
std::int64_t epochs_passed(std::int64_t step, double steps_per_epoch);

// Says what the configuration's lengths are in steps, that of the run itself among them. `source_steps`: all that the
// data has. An Error that names the key where data without epochs (steps_per_epoch 0) is measured in them, the run is
// longer than the data, or the schedule, the curriculum or a key's limits do not fit.
void measure_lengths(Config& config, double steps_per_epoch, std::int64_t source_steps);

}  // namespace keel
