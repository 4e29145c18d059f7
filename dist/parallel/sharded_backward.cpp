// The first half of a step: forward and backward passes, and the collectives that go on meanwhile.

#include <algorithm>
#include <cmath>
#include <utility>

#include "keel/autograd/backward.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/kernels/elementwise.h"

namespace keel {

void Sharded::perform(const UnitSchedule::Actions& actions) {
  using Kind = UnitAction::Kind;
  for (const UnitAction& action : actions) {
    ShardUnit& unit = *units_[action.unit];
    switch (action.kind) {
      case Kind::fetch: unit.parameters().fetch(); break;
      case Kind::gather: unit.parameters().gather(); break;
      case Kind::wait_gathered: unit.parameters().wait_gathered(); break;
      case Kind::release: unit.parameters().release(); break;
      case Kind::store_gradient: unit.gradient().store(); break;
      case Kind::begin_reduce: unit.gradient().begin_reduce(gradient_scale_); break;
      case Kind::continue_reduce: unit.gradient().continue_reduce(); break;
      case Kind::finish_reduce:
        unit.gradient().finish_reduce();
        if (strategy_ && last_seen_) strategy_->after_backward(strategy_units_[action.unit]);
        break;
      case Kind::gather_gradient: unit.gradient().gather_sums(); break;
      case Kind::wait_gradient: unit.gradient().wait_sums(); break;
    }
  }
}

void Sharded::pass_begins() {
  if (BackwardPass::current() == nullptr) perform(schedule_.pass_begins({UnitPass::Kind::forward}));
}

void Sharded::forward_begins(std::size_t module) {
  groups_->poll();
  if (BackwardPass::current() != nullptr) return;  // a recomputation: what it touches is gathered
  if (is_tuning()) tuning_->step_begins();
  perform(schedule_.forward_begins(module));
  if (pager_ && grad_mode() != GradMode::record) pager_->throw_noted();  // no step follows that would
}

void Sharded::forward_ends(std::size_t module) noexcept try {
  groups_->poll();
  if (BackwardPass::current() == nullptr) perform(schedule_.forward_ends(module, grad_mode() == GradMode::record));
} catch (const Error&) {
  // The ranks have failed; every later call of the communicator throws it, and from there it may go on.
}

void Sharded::count_backward(const BackwardOptions& options) {
  KEEL_CHECK(options.weight >= 0 && std::isfinite(options.weight),
             "the weight of a loss must be finite and at least 0, ", "got ", static_cast<double>(options.weight));
  KEEL_CHECK(!last_seen_, "a backward() came after the last one of the step; step() comes first");
  weight_ += options.weight;
  weights_[virtual_rank_] += options.weight;
  last_seen_ = options.last && virtual_rank_ + 1 == weights_.size();
}

void Sharded::backward(const Variable& loss, const BackwardOptions& options) {
  const WeightedLoss whole{loss, options.weight};
  backward(std::span(&whole, 1), options);
}

void Sharded::backward(std::span<const WeightedLoss> terms, const BackwardOptions& options) {
  KEEL_CHECK(!terms.empty(), "backward() needs a loss");
  KEEL_CHECK(trains(), kNothingToTrain);
  for (const WeightedLoss& term : terms)
    KEEL_CHECK(std::isfinite(term.factor), "the factor of a loss must be finite, got ", term.factor);
  count_backward(options);
  if (is_tuning()) tuning_->step_begins();
  const bool counts =
      std::any_of(terms.begin(), terms.end(), [](const WeightedLoss& term) { return term.factor != 0; });
  if (options_.compression.kind().feedback || strategy_) wait_until_released();  // what they keep changes now
  const bool is_alone = size() == 1 && virtual_ranks() == 1;
  if (!counts && is_alone) return;
  for (const auto& unit : units_) unit->count_rows(counts);

  const bool scaled = scales_loss();
  if (scaled && options_.compression.kind().feedback) gradient_scale_ = static_cast<double>(state().loss_scale);
  std::vector<Variable> losses;
  std::vector<Tensor> seeds;
  for (const WeightedLoss& term : terms) {
    losses.push_back(term.value);
    seeds.push_back(make_seed(term.value, term.factor, scaled));
    if (scaled) kernels::scale_by(seeds.back(), kernels::loss_scale_of(decision_->state()));
  }
  const bool reduces = !is_alone && (options.last || options_.sharding.reduces_each(options_.micro_batches));
  perform(schedule_.pass_begins({UnitPass::Kind::backward, reduces, last_seen_}));
  warn_of_rounded_sums();
  keel::backward(losses, seeds, this);
  if (reduces && options_.sharding.strict) check_all_used();
  perform(schedule_.backward_ends());
  if (pager_) pager_->settle();
  if (options.last) end_virtual_rank();
}

// What it has observed, and the turn of the next.
void Sharded::end_virtual_rank() {
  if (virtual_ranks() == 1) return;
  buffer_updates_->collect(static_cast<int>(virtual_rank_));
  if (!last_seen_) ++virtual_rank_;
}

// The gradients of all uses of a unit are added up in 16 bits where its module did not say that there are several.
void Sharded::warn_of_rounded_sums() {
  const PrecisionPolicy& policy = options_.policy;
  for (std::size_t i = 0; i < units_.size() && !has_warned_; ++i) {
    const UnitSplit& split = units_[i]->split();
    if (!split.trainable || split.gradient == policy.gradient || schedule_.uses_of(i) <= 1) continue;
    has_warned_ = true;
    context_.log(LogLevel::warning,
                 concat("a forward pass uses the unit '", units_[i]->layout().unit, "' ", schedule_.uses_of(i),
                        " times, and its gradients are added up in ", split.gradient,
                        "; let its module's uses() say so, and they are added up in ", policy.gradient));
  }
}

void Sharded::release_weights() {
  perform(schedule_.given_back());
  if (tuning_ && weight_ == 0 && !last_seen_) tuning_->forget_step();  // passes that only answer
}

void Sharded::share_updates(std::size_t unit) {
  perform(schedule_.given_back(unit));
  units_[unit]->parameters().share_updates();
}

// A backward pass, be it another engine's, has the whole weights no longer than it runs.
// Outside of passes nobody says when whole weights that were read from a file are of no more use: they are borrowed.
bool Sharded::touched(std::size_t unit) {
  BackwardPass* const pass = BackwardPass::current();
  const UnitSplit& split = units_[unit]->split();
  if (pass == nullptr && split.pages_values && !split.shards_parameters) return false;
  if (pass != nullptr) pass->at_end([this, unit] { perform(schedule_.given_back(unit)); });
  perform(schedule_.touched(unit));
  return true;
}

// A pass in which the parameters are constants has come past one of a unit. Whole weights come and go as in this
// engine's own pass; those of units that the pass does not use up are released at its end.
void Sharded::constant_passed(std::size_t unit, BackwardPass& pass) {
  groups_->poll();
  if (std::exchange(visit_, pass.id()) != pass.id()) {
    perform(schedule_.pass_begins({.kind = UnitPass::Kind::constants}));
    pass.at_end([this] { release_weights(); });
  }
  perform(schedule_.leaf_passed(unit));
}

void Sharded::gradient_ready(std::size_t unit) {
  groups_->poll();
  perform(schedule_.leaf_passed(unit));
}

void Sharded::check_all_used() const {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (!units_[i]->trainable() || schedule_.is_passed(i)) continue;
    for (const Segment& segment : units_[i]->layout().segments)
      if (!segment.parameter->variable.leaf()->has_grad)
        throw Error(concat("the parameter ", segment.name, " got no gradient on rank ", communicator_.rank(),
                           ": the loss does not depend on it; freeze it, or allow it (strict: false)"));
  }
}

}  // namespace keel
