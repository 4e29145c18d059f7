// The second half of a step: what follows from its gradients.

#include <cstring>
#include <string>
#include <utility>

#include "keel/dist/parallel/sharded.h"
#include "keel/kernels/elementwise.h"

namespace keel {

PendingStep Sharded::step(double lr) { return step(StepArgs{.state = {}, .lr = lr}); }

PendingStep Sharded::step(const StepCurves& curves) { return step(StepArgs{.state = {}, .curves = curves}); }

// What all ranks know of the gradient, and what follows for the step.
void Sharded::decide(StepArgs args) {
  KEEL_CHECK(last_seen_, "step() needs a backward() whose options say that it is the last one of the step");
  // Groups that have all shards count once.
  const bool counts = groups_->is_first() || strategy_ != nullptr;
  if (strategy_) {
    strategy_->before_step([this] { return scales_loss() ? static_cast<double>(state().loss_scale) : 1.0; });
    for (const auto& unit : units_)
      if (unit->trainable()) unit->clear_gaps(unit->gradient().own());
  }
  decision_->decide(units_, weights_, counts, std::move(args));
}

PendingStep Sharded::step(StepArgs args) {
  KEEL_CHECK(!optimizer_->requirements().closure, optimizer_->name(),
             " evaluates the loss several times in a step: step() needs a closure for it");
  KEEL_CHECK(!uses_averages_, "step() needs the weights that are trained at: use_averages(false)");
  agree_on_files();
  decide(std::move(args));
  wait_until_released();
  clip_values();
  is_half_updated_ = pager_.has_value();  // a unit after the other: whatever ends it in between
  memory_->update(decision_->state(), [this](std::size_t unit) {
    if (!strategy_) share_updates(unit);
  });
  if (strategy_) share_by_strategy();
  agree_on_files();
  is_half_updated_ = false;
  update_buffers();
  if (options_.compression.kind().feedback) {
    const bool taken = state().taken != 0;
    for (const auto& unit : units_)
      if (Reducer* reducer = unit->reducer()) reducer->end_step(taken);
  }
  zero_grad();
  tune();
  return {*this, decision_->state()};
}

// All ranks go over to what a step has led to before the next one.
void Sharded::tune() {
  if (!is_tuning()) return;
  tuning_->step_ends();
  use_tuned();
}

void Sharded::use_tuned() {
  options_.sharding = tuning_->sharding();
  schedule_.resize(options_.sharding);
  tuned_ranks().use_way(tuning_->algorithm());
}

void Sharded::update_buffers() {
  if (virtual_ranks() == 1) buffer_updates_->collect(0);
  buffer_updates_->apply(decision_->state());
}

void Sharded::share_by_strategy() {
  const bool adopts = strategy_->after_step([this] { return state().taken != 0; });
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const ShardUnit& unit = *units_[i];
    if (!unit.trainable()) continue;
    for (const StrategyState& state : strategy_->state(strategy_units_[i]))
      if (!state.travels) unit.clear_gaps(state.values);
    if (adopts) {
      unit.clear_gaps(unit.parameters().own_weights());
      units_[i]->parameters().adopt_weights();
    }
    share_updates(i);
  }
}

// In place of a factor on the whole gradient: each element that the optimizer reads.
void Sharded::clip_values() {
  if (options_.clip_by != ClipBy::value || options_.clip == 0) return;
  for (const auto& unit : units_) {
    if (!unit->trainable()) continue;
    const Tensor& gradient = unit->sparse() ? unit->gradient().own_rows().values() : unit->gradient().own();
    if (gradient.defined()) kernels::clip_values(gradient, decision_->state(), options_.clip);
  }
}

StepResult PendingStep::get() const {
  StepState state;
  std::memcpy(&state, state_.get().raw(), sizeof state);
  (engine_->group_control_ ? engine_->group_control_ : engine_->control_)->poll();  // as state() does
  return {.taken = state.taken != 0,
          .steps_taken = state.steps,
          .lr = state.lr,
          .grad_norm = state.grad_norm,
          .weight = state.tokens,
          .loss_scale = state.loss_scale,
          .first_bad = engine_->parameter_at(state.first_bad),
          .evaluations = evaluations_};
}

void Sharded::zero_grad() {
  forget_gradients();
  buffer_updates_->forget();
}

void Sharded::forget_gradients() {
  for (const auto& unit : units_) unit->zero_grad();
  memory_->forget_rows();
  weight_ = 0;
  weights_.assign(weights_.size(), 0);
  virtual_rank_ = 0;
  last_seen_ = false;
}

void Sharded::set_activity(const std::string& activity) {
  groups_->set_activity(activity);
  control_->set_activity(activity);
}

// The trainable parameter that holds an element, counted as step() hands units to add_squares(); "" past the last.
std::string Sharded::parameter_at(std::int64_t element) const {
  for (const auto& unit : units_) {
    if (!unit->trainable()) continue;
    for (const Segment& segment : unit->layout().segments)
      if (element < segment.offset + segment.numel) return segment.name;
    element -= unit->layout().numel;
  }
  return {};
}

}  // namespace keel
