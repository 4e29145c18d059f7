#pragma once
// How long a run is, and how far apart things are that it does: in steps, or in epochs of its data.

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
  // "500", "500 steps", "2 epochs", "0.5 epochs", "epoch"; units also as st, sts, step, ep, eps, in any case. An Error
  // for anything else; epochs are above 0, steps whole and at least 0.
  static Length parse(std::string_view text);

  bool is_none() const { return steps_ == 0 && epochs_ == 0; }
  double epochs() const { return epochs_; }      // 0: it is in steps
  std::int64_t steps() const { return steps_; }  // 0: it is in epochs
  // "500", "0.5 epochs".
  std::string text() const;

  void measure(double steps_per_epoch);
  // Whether one of its multiples ends with this step, counted from 1. Those of epochs end with the first step that
  // reaches them.
  bool is_due(std::int64_t step) const;
  // The last step before this one at which one did; 0: none.
  std::int64_t due_before(std::int64_t step) const;
  // Whether one ends behind step `after` and not behind `step`.
  bool is_due_between(std::int64_t after, std::int64_t step) const;

  bool operator==(const Length& other) const { return steps_ == other.steps_ && epochs_ == other.epochs_; }

 private:
  std::int64_t steps_ = 0;
  double epochs_ = 0;
  double distance_ = 0;  // in steps; 0: not measured
};

// Full epochs that have passed after so many steps. An epoch that ends inside a step counts with it.
std::int64_t epochs_passed(std::int64_t step, double steps_per_epoch);

// Says what the configuration's epochs are in steps, those of the run itself among them. `source_steps`: all that the
// data has. An Error that names the key where data without epochs (steps_per_epoch 0) is measured in them, the run is
// longer than the data, or the schedule does not fit.
void measure_lengths(Config& config, double steps_per_epoch, std::int64_t source_steps);

}  // namespace keel
