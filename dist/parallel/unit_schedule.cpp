#include "keel/dist/parallel/unit_schedule.h"

#include <algorithm>
#include <utility>

namespace keel {

UnitSchedule::UnitSchedule(std::vector<ScheduledUnit> units, const ShardingOptions& options)
    : units_(std::move(units)),
      options_(options),
      shards_gradients_(kShardingStages[options.stage].gradients),
      whole_(units_.size()),
      fetched_(units_.size()),
      leaves_left_(units_.size()) {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const std::size_t module = units_[unit].module;
    if (module >= module_units_.size()) module_units_.resize(module + 1);
    module_units_[module].push_back(unit);
  }
  forward_place_.assign(module_units_.size(), -1);
  make_buckets();
}

// Backward meets the units from the last to the first, but for the root's, which come last. Where gradients are sharded
// each unit is a bucket, so that the whole ones go as soon as they can.
void UnitSchedule::make_buckets() {
  std::vector<std::size_t> order;
  for (const bool root : {false, true})
    for (std::size_t unit = units_.size(); unit-- > 0;)
      if (units_[unit].trainable && units_[unit].root == root) order.push_back(unit);
  std::int64_t bytes = 0;
  for (const std::size_t unit : order) {
    const std::int64_t limit = buckets_.size() <= 1 ? options_.first_bucket : options_.bucket;
    if (buckets_.empty() || bytes >= limit || shards_gradients_) {
      buckets_.emplace_back();
      bytes = 0;
    }
    buckets_.back().push_back(unit);
    bytes += units_[unit].gradient_bytes;
  }
}

void UnitSchedule::gather(std::size_t unit) {
  if (!units_[unit].shards_parameters || whole_[unit]) return;
  whole_[unit] = true;
  fetched_[unit] = false;
  add(Kind::gather, unit);
}

// Of the module at a place in the forward order, if there is one.
void UnitSchedule::fetch_module(std::int64_t place) {
  if (place < 0 || place >= static_cast<std::int64_t>(forward_order_.size())) return;
  for (const std::size_t unit : module_units_[forward_order_[static_cast<std::size_t>(place)]]) {
    if (!units_[unit].fetches || whole_[unit] || fetched_[unit]) continue;
    fetched_[unit] = true;
    add(Kind::fetch, unit);
  }
}

void UnitSchedule::gather_module(std::size_t module) {
  for (const std::size_t unit : module_units_[module]) gather(unit);
}

void UnitSchedule::release(std::size_t unit) {
  if (!whole_[unit] && !fetched_[unit]) return;
  whole_[unit] = fetched_[unit] = false;
  add(Kind::release, unit);
}

UnitSchedule::Actions UnitSchedule::forward_begins(std::size_t module) {
  if (forward_place_[module] < 0) {
    forward_place_[module] = static_cast<std::int64_t>(forward_order_.size());
    forward_order_.push_back(module);
  }
  const auto place = static_cast<std::size_t>(forward_place_[module]);
  const auto ahead = static_cast<std::size_t>(options_.prefetch);
  for (std::size_t at = place; at <= place + ahead && at < forward_order_.size(); ++at)
    gather_module(forward_order_[at]);
  fetch_module(static_cast<std::int64_t>(place + ahead + 1));
  for (const std::size_t unit : module_units_[module]) add(Kind::wait_gathered, unit);
  return take();
}

UnitSchedule::Actions UnitSchedule::forward_ends(std::size_t module, bool backward_follows) {
  const bool is_last = module == forward_order_.back();
  const bool stays = !options_.reshard_after_forward || units_[module_units_[module].front()].root ||
                     (is_last && options_.keep_last_unit && backward_follows);
  if (!stays)
    for (const std::size_t unit : module_units_[module]) release(unit);
  return take();
}

UnitSchedule::Actions UnitSchedule::backward_begins(const Backward& pass) {
  constants_begin();
  pass_ = pass;
  gives_gradients_ = true;
  const auto ahead = std::min(static_cast<std::size_t>(options_.prefetch), forward_order_.size());
  for (std::size_t i = 1; i <= ahead; ++i) gather_module(forward_order_[forward_order_.size() - i]);
  fetch_module(static_cast<std::int64_t>(forward_order_.size() - ahead) - 1);
  return take();
}

void UnitSchedule::constants_begin() {
  pass_ = {};
  gives_gradients_ = false;
  next_bucket_ = 0;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) leaves_left_[unit] = units_[unit].leaves;
}

UnitSchedule::Actions UnitSchedule::leaf_passed(std::size_t unit) {
  if (leaves_left_[unit] == units_[unit].leaves) gradient_begins(unit);
  if (--leaves_left_[unit] == 0) {
    release(unit);
    const bool sends = pass_.reduces && options_.overlap;
    if (sends) send_ready_buckets(false);
    else if (gives_gradients_ && units_[unit].stores_gradient) add(Kind::store_gradient, unit);
  }
  return take();
}

// The first gradient of a unit: those before it in the forward pass come next, unless a recomputation of several units
// at once has brought their gradients already.
void UnitSchedule::gradient_begins(std::size_t unit) {
  const std::int64_t own = forward_place_[units_[unit].module], place = own - options_.prefetch;
  if (own < 0) return;
  // The root's first gradient, as that of a head, may be the first of all.
  if (!units_[unit].root) release_passed(own);
  if (place < 0) return;
  const std::size_t next = forward_order_[static_cast<std::size_t>(place)];
  if (!is_done(next)) gather_module(next);
  if (place > 0 && !is_done(forward_order_[static_cast<std::size_t>(place - 1)])) fetch_module(place - 1);
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

// Frozen weights have no gradient that would say when they have been used: those behind this place in the forward pass
// have. Whoever reads them again gathers them again.
void UnitSchedule::release_passed(std::int64_t place) {
  for (std::size_t at = static_cast<std::size_t>(place) + 1; at < forward_order_.size(); ++at)
    for (const std::size_t unit : module_units_[forward_order_[at]])
      if (!units_[unit].trainable) release(unit);
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
  for (std::size_t unit = 0; unit < units_.size(); ++unit) release(unit);
  return take();
}

UnitSchedule::Actions UnitSchedule::touched(std::size_t unit) {
  gather(unit);
  add(Kind::wait_gathered, unit);
  return take();
}

UnitSchedule::Actions UnitSchedule::given_back(std::size_t unit) {
  release(unit);
  return take();
}

UnitSchedule::Actions UnitSchedule::given_back() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) release(unit);
  return take();
}

}  // namespace keel
