#include "keel/trainer/length.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "keel/config/schema_row.h"
#include "keel/runtime/error.h"
#include "keel/trainer/config.h"
#include "keel/trainer/learning_rate.h"

namespace keel {
namespace {

// What rounding may take from a multiple.
constexpr double kSlack = 1e-9;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;

double multiples(std::int64_t step, double distance) {
  return std::floor(static_cast<double>(step) / distance + kSlack);
}

std::string lower(std::string_view text) {
  std::string word(text);
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

}  // namespace

Length Length::of_epochs(double epochs) {
  Length length;
  length.epochs_ = epochs;
  return length;
}

Length Length::of_run(double percent) {
  Length length;
  length.percent_ = percent;
  return length;
}

Length Length::parse(std::string_view text) {
  const auto refuse = [&] {
    throw Error(concat("expects steps, epochs or a part of the run, such as 500, 0.5 epochs or 10%, got '", text, "'"));
  };
  double number = 1;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool has_number = code == std::errc();
  std::string_view rest = has_number ? text.substr(static_cast<std::size_t>(end - text.data())) : text;
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const std::string unit = lower(rest);
  if (is_one_of(unit, {"epoch", "epochs", "ep", "eps"})) {
    if (!(number > 0) || !std::isfinite(number)) refuse();
    return of_epochs(number);
  }
  if (unit == "%") {
    if (!has_number || !(number > 0 && number <= 100)) refuse();
    return of_run(number);
  }
  const bool is_steps = unit.empty() ? has_number : is_one_of(unit, {"step", "steps", "st", "sts"});
  if (!is_steps || !(number >= 0) || number != std::floor(number) || number > static_cast<double>(kMostSteps)) refuse();
  return Length(static_cast<std::int64_t>(number));
}

std::string Length::text() const {
  if (percent_ > 0) return fmt::format("{}%", percent_);
  if (epochs_ == 0) return std::to_string(steps_);
  return fmt::format("{} epoch{}", epochs_, epochs_ == 1 ? "" : "s");
}

void Length::measure(double steps_per_epoch, std::int64_t run_steps) {
  if (epochs_ > 0) distance_ = epochs_ * steps_per_epoch;
  if (percent_ > 0) distance_ = percent_ * static_cast<double>(run_steps) / 100;
}

void Length::check_measured() const {
  KEEL_CHECK(is_measured(), "a length of ", text(), " has not been measured in steps");
}

std::int64_t Length::last_step() const {
  check_measured();
  return static_cast<std::int64_t>(std::ceil(distance_ - kSlack));
}

bool Length::is_due_between(std::int64_t after, std::int64_t step) const {
  check_measured();
  return distance_ > 0 && multiples(step, distance_) > multiples(after, distance_);
}

bool Length::is_due(std::int64_t step) const { return is_due_between(step - 1, step); }

std::int64_t Length::due_before(std::int64_t step) const {
  check_measured();
  if (is_none()) return 0;
  return std::max<std::int64_t>(
      0, static_cast<std::int64_t>(std::ceil(multiples(step - 1, distance_) * distance_ - kSlack)));
}

std::int64_t epochs_passed(std::int64_t step, double steps_per_epoch) {
  return steps_per_epoch > 0 ? static_cast<std::int64_t>(multiples(step, steps_per_epoch)) : 0;
}

void measure_lengths(Config& config, double steps_per_epoch, std::int64_t source_steps) {
  const auto check = [&](std::string_view key, double epochs) {
    KEEL_CHECK(epochs == 0 || steps_per_epoch > 0, key,
               ": this data has no epochs, as its rows are drawn without end; give steps instead of epochs");
  };
  check("epochs", config.epochs);
  for (const TypedSettings& each : config.trackers)
    check(concat("tracker: ", each.type, ": every"), Length::parse(each.settings.text("every")).epochs());
  config.epoch_steps = steps_per_epoch;
  if (config.epochs > 0) {
    const double steps = std::ceil(config.epochs * steps_per_epoch - kSlack);
    KEEL_CHECK(steps <= static_cast<double>(kMostSteps), "epochs: ", config.epochs, " epochs are more than ",
               kMostSteps, " steps");
    config.steps = std::max<std::int64_t>(1, static_cast<std::int64_t>(steps));
    for (const ScheduleComplaint& each : check_learning_rates(config))
      throw Error(concat("scheduler.", each.where, ": ", each.message, ", with ", config.steps, " steps in ",
                         config.epochs, " epochs"));
  }
  KEEL_CHECK(config.steps <= source_steps, config.epochs > 0 ? "epochs" : "steps", ": the data ends after ",
             source_steps, " steps, and the run has ", config.steps);
  for_each_length(config, [&](const SchemaRow& row, Length& length) {
    check(row.key, length.epochs());
    length.measure(steps_per_epoch, config.steps);
    KEEL_CHECK(!length.has_unit() || row.range.contains(static_cast<double>(length.last_step())), row.key, ": expects ",
               describe_values(row), ", and ", length.text(), " are ", length.last_step(), " steps");
  });
  const std::string problem = problem_of(config.curriculum);
  KEEL_CHECK(problem.empty(), "curriculum.until: ", problem);
}

}  // namespace keel
