// The half of the schedule that a backward pass tells of: what it reads next, and when gradients leave.

#include <algorithm>
#include <utility>

#include "keel/dist/parallel/unit_schedule.h"

namespace keel {

void UnitSchedule::begin_backward(const UnitPass& pass) {
  pass_ = pass;
  next_bucket_ = 0;
  awaited_.assign(awaited_.size(), false);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    leaves_left_[unit] = units_[unit].leaves;
    begun_[unit] = false;
  }
  if (pass.kind == UnitPass::Kind::constants) return;
  const std::size_t begin = std::min(ahead(), uses_.size());
  for (std::size_t i = 1; i <= begin; ++i) gather_module(uses_[uses_.size() - i]);
  fetch_use(static_cast<std::int64_t>(uses_.size() - begin) - 1);
}

UnitSchedule::Actions UnitSchedule::gradient_begins(std::size_t unit) {
  first_gradient(unit);
  return take();
}

UnitSchedule::Actions UnitSchedule::leaf_passed(std::size_t unit) {
  first_gradient(unit);
  if (--leaves_left_[unit] == 0) {
    release(unit);
    const bool sends = pass_.reduces && options_.overlap;
    if (sends) send_ready_buckets(false);
    else if (pass_.kind == UnitPass::Kind::backward && units_[unit].stores_gradient) add(Kind::store_gradient, unit);
  }
  return take();
}

// The first gradient of a unit: those used before it in the forward pass come next, unless a recomputation of several
// units at once has brought their gradients already.
void UnitSchedule::first_gradient(std::size_t unit) {
  if (begun_[unit]) return;
  begun_[unit] = true;
  if (first_use_.empty()) return;
  const std::int64_t own = first_use_[units_[unit].module];
  if (own < 0) return;
  // The root's first gradient, as that of a head, may be the first of all.
  if (!units_[unit].root) release_passed(own);
  for (std::int64_t use = own - 1; use >= std::max<std::int64_t>(own - options_.prefetch, 0); --use) {
    const std::size_t next = uses_[static_cast<std::size_t>(use)];
    if (!is_done(next)) gather_module(next);
  }
  const std::int64_t further = own - options_.prefetch - 1;
  if (further >= 0 && !is_done(uses_[static_cast<std::size_t>(further)])) fetch_use(further);
}

// Whether the pass has come past all of a module's own trained parameters. Never, where all are frozen.
bool UnitSchedule::is_done(std::size_t module) const {
  bool trains = false;
  for (const std::size_t unit : module_units_[module]) {
    if (!units_[unit].trainable) continue;
    if (leaves_left_[unit] > 0) return false;
    trains = true;
  }
  return trains;
}

// Frozen weights have no gradient that would say when they have been used: those whose first use comes behind this one
// in the forward pass have. Whoever reads them again gathers them again.
void UnitSchedule::release_passed(std::int64_t place) {
  for (std::size_t unit = 0; unit < units_.size(); ++unit)
    if (!units_[unit].trainable && first_use_[units_[unit].module] > place) release(unit);
}

// Buckets leave in their order, whatever is ready first: ranks must agree.
void UnitSchedule::send_ready_buckets(bool all) {
  for (; next_bucket_ < buckets_.size(); ++next_bucket_) {
    const std::vector<std::size_t>& bucket = buckets_[next_bucket_];
    if (!all && !std::ranges::all_of(bucket, [&](std::size_t unit) { return is_passed(unit); })) return;
    for (const std::size_t unit : bucket) {
      while (sent_.size() >= most_under_way()) finish_oldest();
      continue_newest();
      add(Kind::begin_reduce, unit);
      sent_.push_back(unit);
      newest_continued_ = false;
    }
  }
}

void UnitSchedule::continue_newest() {
  if (sent_.empty() || std::exchange(newest_continued_, true)) return;
  add(Kind::continue_reduce, sent_.back());
}

void UnitSchedule::finish_oldest() {
  if (sent_.size() == 1) continue_newest();
  add(Kind::finish_reduce, sent_.front());
  sent_.pop_front();
}

UnitSchedule::Actions UnitSchedule::backward_ends() {
  if (pass_.reduces) {
    send_ready_buckets(true);
    while (!sent_.empty()) finish_oldest();
    if (pass_.last)
      for (const Kind kind : {Kind::gather_gradient, Kind::wait_gradient})
        for (std::size_t unit = 0; unit < units_.size(); ++unit)
          if (units_[unit].gathers_sums) add(kind, unit);
  }
  pass_ = {};
  return given_back();
}

}  // namespace keel
