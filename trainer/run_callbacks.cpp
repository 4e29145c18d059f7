#include "keel/trainer/run_callbacks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "keel/dist/checkpoint/load.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/runtime/printable.h"
#include "keel/tasks/names.h"

namespace keel {
namespace {

constexpr std::string_view kSection = "callback.";

bool has_infinity(const Json& json) {
  if (json.is_number()) return !std::isfinite(json.number());
  if (json.is_object())
    return std::ranges::any_of(json.members(), [](const auto& member) { return has_infinity(member.second); });
  if (!json.is_array()) return false;
  return std::ranges::any_of(json.items(), has_infinity);
}

std::string section_of(const Callback& callback) { return concat(kSection, callback.name()); }

}  // namespace

RunCallbacks::RunCallbacks(Callbacks callbacks, const Site& site) : site_(site) {
  for (std::shared_ptr<Callback>& each : callbacks) {
    KEEL_CHECK(each != nullptr, "a callback is null");
    KEEL_CHECK(is_name(each->name()), "'", each->name(),
               "' is no name of a callback: letters, digits and _ are possible");
    for (const Listed& other : callbacks_)
      KEEL_CHECK(other.callback->name() != each->name(), "two callbacks have the name '", each->name(), "'");
    callbacks_.push_back({std::move(each)});
  }
}

void RunCallbacks::note(const StepOutcome& outcome, std::int64_t units) {
  state_.known = outcome.step;
  state_.loss = outcome.loss;
  state_.lr = outcome.result.lr;
  state_.grad_norm = outcome.result.grad_norm;
  state_.terms.clear();
  for (const NamedNumber& each : outcome.terms) state_.terms[each.name] = each.value;
  state_.taken = outcome.result.taken;
  state_.units = units;
}

void RunCallbacks::note_failure(const Callback& callback, std::string_view event, const char* what, ErrorKind kind) {
  if (!failure_.empty()) return;
  failure_ = concat("callback ", callback.name(), " failed in ", event, ": ", what);
  failure_kind_ = kind;
  wishes_.failed = true;
}

template <class F>
void RunCallbacks::for_each(std::string_view event, const F& f) {
  for (Listed& each : callbacks_) {
    if (each.has_failed && event != "fit_end") continue;
    try {
      f(*each.callback);
    } catch (const AgreedError&) { throw; } catch (const Error& error) {
      each.has_failed = true;
      note_failure(*each.callback, event, error.what(), error.kind());
    } catch (const std::exception& error) {
      each.has_failed = true;
      note_failure(*each.callback, event, error.what(), ErrorKind::internal);
    }
  }
}

void RunCallbacks::tell(std::string_view name, Event event) {
  for_each(name, [&](Callback& each) { (each.*event)(*this); });
}

void RunCallbacks::tell_evaluation_end(bool done) {
  for_each("evaluation_end", [&](Callback& each) { each.evaluation_end(*this, done); });
}

void RunCallbacks::tell_saved(const std::string& path, std::int64_t step) {
  for_each("checkpoint_saved", [&](Callback& each) { each.checkpoint_saved(*this, path, step); });
}

void RunCallbacks::tell_together(std::string_view name, Event event) {
  if (empty()) return;
  tell(name, event);
  keel::together(site_.ranks, [&] {
    if (!failure_.empty()) throw Error(MessageLines{failure_}, failure_kind_);
  });
}

// A run ends by its first error; what comes after it is told.
template <class F>
void RunCallbacks::tell_quietly(std::string_view event, const F& f) noexcept {
  for (const Listed& each : callbacks_) {
    try {
      try {
        f(*each.callback);
      } catch (const std::exception& error) {
        message(LogLevel::error, concat("callback ", each.callback->name(), " failed in ", event, ": ", error.what()));
      }
    } catch (...) {}  // not even that can be told
  }
}

void RunCallbacks::tell_exception() noexcept {
  try {
    throw;
  } catch (const std::exception& error) {
    tell_quietly("exception", [&](Callback& each) { each.exception(*this, error); });
  } catch (...) {}
}

void RunCallbacks::tell_end_after_failure() noexcept {
  tell_quietly("fit_end", [&](Callback& each) { each.fit_end(*this); });
}

void RunCallbacks::before_backward(std::int64_t micro_batch) {
  state_.micro_batch = micro_batch;
  tell("before_backward", &Callback::before_backward);
}

void RunCallbacks::after_backward(std::int64_t micro_batch) {
  state_.micro_batch = micro_batch;
  tell("after_backward", &Callback::after_backward);
  state_.micro_batch = -1;
}

void RunCallbacks::out_of_memory(const std::exception& error) {
  state_.micro_batch = -1;
  tell_quietly("out_of_memory", [&](Callback& each) { each.out_of_memory(*this, error); });
}

void RunCallbacks::before_optimizer_step() { tell("before_optimizer_step", &Callback::before_optimizer_step); }

void RunCallbacks::after_optimizer_step() { tell("after_optimizer_step", &Callback::after_optimizer_step); }

void RunCallbacks::hear(const LoopWishes& agreed) {
  if (agreed.rate != LoopWishes::kNone) {
    state_.rate_factor = agreed.rate;
    if (wishes_.rate == agreed.rate) wishes_.rate = LoopWishes::kNone;
  }
  if (agreed.evaluate) wishes_.evaluate = false;
  if (agreed.save) wishes_.save = false;
  if (!agreed.stop) return;
  for (const std::string& reason : gather_texts(site_.ranks, own_reason_))
    if (stop_reason_.empty()) stop_reason_ = reason;
}

LoopWishes RunCallbacks::agree() {
  if (empty()) return {};
  const LoopWishes agreed = agreed_wishes(gather_values(site_.ranks, wishes_));
  hear(agreed);
  return agreed;
}

void RunCallbacks::ask_stop(std::string_view reason) {
  if (wishes_.stop) return;
  wishes_.stop = true;
  own_reason_ = reason.empty() ? "a callback asked for it" : reason;
}

void RunCallbacks::set_rate_factor(double factor) {
  KEEL_CHECK(std::isfinite(factor) && factor >= 0, "a factor on the learning rate is finite and at least 0, not ",
             factor);
  wishes_.rate = factor;
}

void RunCallbacks::log(std::string_view name, double value) {
  KEEL_CHECK(!is_record_name(name), "'", name, "' is a name of keel's own records; log the value by another one");
  const auto place = std::ranges::find(logged_, name, [](const auto& each) { return std::string_view(each.first); });
  if (place != logged_.end()) place->second = value;
  else logged_.emplace_back(name, value);
}

void RunCallbacks::together(const std::function<void()>& f) { keel::together(site_.ranks, f); }

Json RunCallbacks::save() const {
  Json all = Json::object();
  if (empty()) return all;
  std::string lines;
  keel::together(site_.ranks, [&] {
    for (const Listed& each : callbacks_) {
      const Json numbers = each.callback->save().numbers;
      if (numbers.is_null()) continue;
      KEEL_CHECK(!has_infinity(numbers), "callback ", each.callback->name(), " keeps a number that is not finite");
      lines += concat(each.callback->name(), ' ', numbers.dump(), '\n');
      all[each.callback->name()] = numbers;
    }
  });
  check_agreement(site_.ranks, lines, "ranks have callbacks that keep different numbers");
  return all;
}

std::vector<SavedBeside> RunCallbacks::tensors() const {
  std::vector<SavedBeside> all;
  for (const Listed& each : callbacks_)
    if (TensorParts parts = each.callback->save().tensors; !parts.empty())
      all.push_back({section_of(*each.callback), std::move(parts)});
  return all;
}

void RunCallbacks::load(const Checkpoint& checkpoint) {
  const std::vector<std::string> stored = checkpoint.manifest.sections(kSection);
  const Json& numbers = checkpoint.state.callbacks;
  const auto has = [&](const std::string& name) {
    return numbers.contains(name) || std::ranges::find(stored, concat(kSection, name)) != stored.end();
  };
  const auto note = [&](std::string_view text) {
    if (rank() == 0) message(LogLevel::info, text);
  };
  site_.engine.wait_until_released();
  for (const Listed& each : callbacks_) {
    const std::string name(each.callback->name());
    CallbackState mine = each.callback->save();
    if (mine.numbers.is_null() && mine.tensors.empty()) continue;
    if (!has(name)) {
      note(concat("'", checkpoint.path, "' has nothing of the callback ", name, ", which begins anew"));
      continue;
    }
    if (!mine.tensors.empty())
      load_beside(checkpoint.path, checkpoint.manifest, {section_of(*each.callback), std::move(mine.tensors)},
                  concat("'", checkpoint.path, "' has other tensors of the callback ", name), site_.ranks);
    together([&] { each.callback->load(numbers.contains(name) ? numbers.at(name) : Json()); });
  }
  std::vector<std::string> left;
  for (const auto& [name, value] : numbers.members()) left.push_back(name);
  for (const std::string& section : stored) left.push_back(section.substr(kSection.size()));
  std::ranges::sort(left);
  left.erase(std::unique(left.begin(), left.end()), left.end());
  for (const std::string& name : left)
    if (std::ranges::none_of(callbacks_, [&](const Listed& each) { return each.callback->name() == name; }))
      note(concat("what '", checkpoint.path, "' has of the callback ", name, " is left out: the run has none"));
}

}  // namespace keel
