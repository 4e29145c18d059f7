// The first half of a step: forward and backward passes, and the collectives that go on meanwhile.

#include <algorithm>
#include <cmath>
#include <utility>

#include "keel/autograd/backward.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/kernels/elementwise.h"

namespace keel {

void Sharded::gather_module(std::size_t module) {
  for (const std::size_t unit : module_units_[module]) units_[unit]->gather();
}

void Sharded::forward_begins(std::size_t module) {
  communicator_.poll();
  if (BackwardPass::current() != nullptr) return;  // a recomputation: what it touches is gathered
  if (forward_place_[module] < 0) {
    forward_place_[module] = static_cast<std::int64_t>(forward_order_.size());
    forward_order_.push_back(module);
  }
  gather_module(module);
  const auto place = static_cast<std::size_t>(forward_place_[module]);
  for (std::size_t ahead = 1; ahead <= static_cast<std::size_t>(options_.sharding.prefetch); ++ahead)
    if (place + ahead < forward_order_.size()) gather_module(forward_order_[place + ahead]);
  for (const std::size_t unit : module_units_[module]) units_[unit]->wait_gathered();
}

void Sharded::forward_ends(std::size_t module) noexcept try {
  communicator_.poll();
  if (BackwardPass::current() != nullptr || !options_.sharding.reshard_after_forward ||
      units_[module_units_[module].front()]->layout().unit.empty())
    return;
  const bool is_last = module == forward_order_.back();
  if (is_last && options_.sharding.keep_last_unit && grad_mode() == GradMode::record) return;
  for (const std::size_t unit : module_units_[module]) units_[unit]->release();
} catch (const Error&) {
  // The ranks have failed; every later call of the communicator throws it, and from there it may go on.
}

void Sharded::count_backward(const BackwardOptions& options) {
  KEEL_CHECK(options.weight >= 0 && std::isfinite(options.weight),
             "the weight of a loss must be finite and at least 0, ", "got ", static_cast<double>(options.weight));
  KEEL_CHECK(!last_seen_, "a backward() came after the last one of the step; step() comes first");
  weight_ += options.weight;
  last_seen_ = options.last;
}

void Sharded::backward(const Variable& loss, const BackwardOptions& options) {
  const WeightedLoss whole{loss, options.weight};
  backward(std::span(&whole, 1), options);
}

void Sharded::backward(std::span<const WeightedLoss> terms, const BackwardOptions& options) {
  KEEL_CHECK(!terms.empty(), "backward() needs a loss");
  for (const WeightedLoss& term : terms)
    KEEL_CHECK(std::isfinite(term.factor), "the factor of a loss must be finite, got ", term.factor);
  count_backward(options);
  const bool counts =
      std::any_of(terms.begin(), terms.end(), [](const WeightedLoss& term) { return term.factor != 0; });
  if (options_.compression.kind().feedback) wait_until_released();  // residuals change now
  if (!counts && size() == 1) return;
  reducing_ = size() > 1 && (options.last || options_.sharding.reduces_each(options_.micro_batches));
  count_leaves();
  for (const auto& unit : units_) unit->count_rows(counts);
  next_bucket_ = 0;

  const bool scaled = options_.loss_scale != 1 || options_.scaling.growth != 1;
  if (scaled && options_.compression.kind().feedback) gradient_scale_ = static_cast<double>(state().loss_scale);
  std::vector<Variable> losses;
  std::vector<Tensor> seeds;
  for (const WeightedLoss& term : terms) {
    losses.push_back(term.value);
    seeds.push_back(make_seed(term.value, term.factor, scaled));
    if (scaled) kernels::scale_by(seeds.back(), kernels::loss_scale_of(state_));
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(options_.sharding.prefetch) && i < forward_order_.size(); ++i)
    gather_module(forward_order_[forward_order_.size() - 1 - i]);
  keel::backward(losses, seeds, this);
  if (reducing_) {
    if (options_.sharding.strict) check_all_used();
    send_ready_buckets(true);
    while (!sent_.empty()) finish_oldest();
    if (options.last) gather_gradients();
  }
  release_weights();
}

void Sharded::release_weights() {
  for (const auto& unit : units_) unit->release();
}

void Sharded::count_leaves() {
  leaves_left_.clear();
  for (const auto& unit : units_) leaves_left_.push_back(unit->layout().segments.size());
}

// A pass in which the parameters are constants has come past one of a unit. Whole weights come and go as in this
// engine's own pass; those of units that the pass does not use up are released at its end.
void Sharded::constant_passed(std::size_t unit, BackwardPass& pass) {
  communicator_.poll();
  if (std::exchange(visit_, pass.id()) != pass.id()) {
    count_leaves();
    pass.at_end([this] { release_weights(); });
  }
  if (leaves_left_[unit] == units_[unit]->layout().segments.size()) gradient_begins(unit);
  if (--leaves_left_[unit] == 0) units_[unit]->release();
}

void Sharded::gradient_ready(std::size_t unit) {
  communicator_.poll();
  if (leaves_left_[unit] == units_[unit]->layout().segments.size()) gradient_begins(unit);
  if (--leaves_left_[unit] != 0) return;
  units_[unit]->release();
  if (reducing_ && options_.sharding.overlap) send_ready_buckets(false);
}

// Whether all gradients of a module's own parameters are there. Never, where all are frozen.
bool Sharded::is_done(std::size_t module) const {
  bool trains = false;
  for (const std::size_t unit : module_units_[module]) {
    if (!units_[unit]->trainable()) continue;
    if (leaves_left_[unit] > 0) return false;
    trains = true;
  }
  return trains;
}

// Frozen weights have no gradient that would say when they have been used: those behind this place in the forward pass
// have. Whoever reads them again gathers them again.
void Sharded::release_passed(std::int64_t place) {
  for (std::size_t at = static_cast<std::size_t>(place) + 1; at < forward_order_.size(); ++at)
    for (const std::size_t unit : module_units_[forward_order_[at]])
      if (!units_[unit]->trainable()) units_[unit]->release();
}

// The first gradient of a unit: those before it in the forward pass come next, unless a recomputation of several units
// at once has brought their gradients already.
void Sharded::gradient_begins(std::size_t unit) {
  const std::int64_t own = forward_place_[unit_modules_[unit]], place = own - options_.sharding.prefetch;
  if (own < 0) return;
  // The root's first gradient, as that of a head, may be the first of all.
  if (!units_[unit]->layout().unit.empty()) release_passed(own);
  if (place < 0) return;
  const std::size_t next = forward_order_[static_cast<std::size_t>(place)];
  if (!is_done(next)) gather_module(next);
}

// Buckets leave in their order, whatever is ready first: ranks must agree.
void Sharded::send_ready_buckets(bool all) {
  // Units whose sums may be under way. Where gradients are sharded the whole ones of each take memory.
  const std::size_t under_way = kShardingStages[options_.sharding.stage].gradients ? 1 : 4;
  for (; next_bucket_ < buckets_.size(); ++next_bucket_) {
    const auto ready = [&](std::size_t unit) { return leaves_left_[unit] == 0; };
    const std::vector<std::size_t>& bucket = buckets_[next_bucket_];
    if (!all && !std::all_of(bucket.begin(), bucket.end(), ready)) return;
    for (const std::size_t unit : bucket) {
      while (sent_.size() >= under_way) finish_oldest();
      if (!sent_.empty()) units_[sent_.back()]->continue_reduce();
      units_[unit]->begin_reduce(gradient_scale_);
      sent_.push_back(unit);
    }
  }
}

void Sharded::finish_oldest() {
  units_[sent_.front()]->finish_reduce();
  sent_.pop_front();
}

void Sharded::gather_gradients() {
  for (const auto& unit : units_) unit->gather_gradient();
  for (const auto& unit : units_) unit->wait_gradient();
}

void Sharded::check_all_used() const {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (!units_[i]->trainable() || leaves_left_[i] == 0) continue;
    for (const Segment& segment : units_[i]->layout().segments)
      if (!segment.parameter->variable.leaf()->has_grad)
        throw Error(concat("the parameter ", segment.name, " got no gradient on rank ", communicator_.rank(),
                           ": the loss does not depend on it; freeze it, or allow it (strict: false)"));
  }
}

}  // namespace keel
