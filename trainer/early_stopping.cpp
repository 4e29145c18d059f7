#include "keel/trainer/early_stopping.h"

#include <cmath>
#include <filesystem>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/trainer/run_folder.h"

namespace keel {
namespace {

// What a rule found best: nothing, where every value so far was NaN or infinite, which JSON has no word for.
Json json_of(const std::optional<double>& best) { return best && std::isfinite(*best) ? Json(*best) : Json(); }

std::optional<double> best_in(const Json& numbers) {
  const Json& best = numbers.at("best");
  return best.is_null() ? std::nullopt : std::optional(best.number());
}

}  // namespace

void EarlyStopping::stop_where_spent(LoopView& view) const {
  if (missed_ >= patience_)
    view.ask_stop(concat(rule_.metric, " has not become better in ", missed_,
                         missed_ == 1 ? " evaluation" : " evaluations", " since step ", best_step_,
                         " (early_stopping)"));
}

void EarlyStopping::resumed(LoopView& view) { stop_where_spent(view); }

void EarlyStopping::evaluation_end(LoopView& view, bool done) {
  if (!done) return;
  const double value = rule_.value_in(view.state().metrics, "early_stopping.metric");
  if (rule_.is_better(value, best_)) {
    best_ = value;
    best_step_ = view.state().step;
    missed_ = 0;
  } else {
    ++missed_;
  }
  stop_where_spent(view);
}

CallbackState EarlyStopping::save() {
  return {.numbers = {{"best", json_of(best_)}, {"step", best_step_}, {"missed", missed_}}};
}

void EarlyStopping::load(const Json& numbers) {
  best_ = best_in(numbers);
  best_step_ = numbers.at("step").integer();
  missed_ = numbers.at("missed").integer();
}

void BestCheckpoint::evaluation_end(LoopView& view, bool done) {
  if (!done || view.state().step == 0) return;
  const double value = rule_.value_in(view.state().metrics, "checkpoint.best");
  if (!rule_.is_better(value, best_)) return;
  best_ = value;
  best_step_ = view.state().step;
  view.ask_checkpoint();
}

void BestCheckpoint::checkpoint_saved(LoopView& view, const std::string& path, std::int64_t step) {
  if (step != best_step_ || !view.is_first()) return;
  try {
    write_text_file(RunFolder(view.run_folder()).best(), std::filesystem::path(path).filename().string() + "\n");
  } catch (const Error& error) {
    // The checkpoint is there, and training worth more than its name.
    view.message(LogLevel::warning, concat("the best checkpoint, of step ", step, ", is not named: ", error.what()));
  }
}

CallbackState BestCheckpoint::save() { return {.numbers = {{"best", json_of(best_)}, {"step", best_step_}}}; }

void BestCheckpoint::load(const Json& numbers) {
  best_ = best_in(numbers);
  best_step_ = numbers.at("step").integer();
}

}  // namespace keel
