#include "keel/trainer/run_outcomes.h"

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"

namespace keel {

RunOutcomes::RunOutcomes(const Site& site) : site_(site), known_step_(site.state.step) {
  for (const auto& stack : site.stacks.trained()) {
    const Sharded& engine = stack->engine();
    skipped_.emplace(stack->name(), SkippedSteps(engine.options().scaling, engine.steps_taken(), stack->name()));
    has_groups_ |= static_cast<bool>(engine.options().strategy);
  }
}

void RunOutcomes::check_some_step_was_taken() const {
  for (const auto& [name, skipped] : skipped_) skipped.check_some_step_was_taken(site_.ranks);
}

// Steps that groups of ranks skip are their own, and so is what such steps end.
void RunOutcomes::count(const ModelUpdate& update) {
  try {
    skipped_.at(update.model).count(update.result, known_step_);
  } catch (const AgreedError& error) {
    if (!has_groups_) throw;
    skips_ = error.what();
  }
}

void RunOutcomes::handle(const RunSteps::Turn& turn, const RunSteps& steps) {
  if (turn.flags.failed) {
    failure_is_known_ = true;
    fail_together(turn.failed_rank, steps);
  }
  if (!turn.outcome) return;
  try {
    report(*turn.outcome, steps);
  } catch (...) {
    if (site_.ranks.size() == 1) throw;
    failure_ = std::current_exception();
  }
  site_.state.optimizer.steps = turn.outcome->result.steps_taken;
  known_step_ = turn.outcome->step;
  for (const ModelUpdate& each : turn.outcome->updates) count(each);
}

// On all ranks: why this one cannot go on.
void RunOutcomes::fail_together(int rank, const RunSteps& steps) {
  const RunCallbacks& callbacks = site_.callbacks;
  const std::string& missing = steps.data_failure();
  const bool skips = missing.empty() && !skips_.empty();
  const std::string& own = skips ? skips_ : missing.empty() ? callbacks.failure() : missing;
  const std::string reason = broadcast_text(site_.ranks, own, rank);
  const ErrorKind kind = skips ? ErrorKind::numeric : missing.empty() ? callbacks.failure_kind() : ErrorKind::io;
  const ErrorKind told = gather_values(site_.ranks, kind)[static_cast<std::size_t>(rank)];
  if (!reason.empty())
    throw AgreedError(MessageLines{site_.ranks.size() == 1 ? reason : concat("rank ", rank, ": ", reason)}, told);
  if (failure_) std::rethrow_exception(failure_);
  throw AgreedError(concat("rank ", rank, " cannot go on; its log says why"), ErrorKind::peer);
}

void RunOutcomes::report(const StepOutcome& outcome, const RunSteps& steps) {
  site_.state.tokens += outcome.units;
  loss_ = outcome.loss;
  for (const auto& [model, result] : outcome.updates) {
    if (result.taken) continue;
    const SkippedSteps& skipped = skipped_.at(model);
    site_.observer.on_message(skipped.are_expected() ? LogLevel::info : LogLevel::warning,
                              skipped.message(result, outcome.step));
  }
  site_.callbacks.note(outcome, site_.state.tokens);
  LoopState& loop = site_.callbacks.loop();
  loop.seconds = site_.report.seconds();
  loop.waited_ms = waited_ms(steps);
  for (auto& each : site_.callbacks.take_logged()) logged_.push_back(std::move(each));
  if (site_.report.tell_step(outcome, loop.waited_ms, site_.state.tokens, logged_)) logged_.clear();
}

}  // namespace keel
