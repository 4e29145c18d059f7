#include "keel/dist/parallel/unit_schedule.h"

#include <algorithm>

#include "keel/runtime/error.h"

namespace keel {
namespace {

// Uses of a forward pass that are remembered. Nothing is expected past them.
constexpr std::size_t kMostUses = std::size_t{1} << 16;

}  // namespace

UnitSchedule::UnitSchedule(std::vector<ScheduledUnit> units, const ShardingOptions& options)
    : units_(std::move(units)),
      options_(options),
      shards_gradients_(kShardingStages[options.stage].gradients),
      whole_(units_.size()),
      fetched_(units_.size()),
      leaves_left_(units_.size()),
      begun_(units_.size()) {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const std::size_t module = units_[unit].module;
    if (module >= module_units_.size()) module_units_.resize(module + 1);
    module_units_[module].push_back(unit);
  }
  awaited_.resize(module_units_.size());
  running_.resize(module_units_.size());
  make_buckets();
}

void UnitSchedule::resize(const ShardingOptions& options) {
  if (options.stage != options_.stage || pass_.reduces)
    throw Error("a schedule of units is resized between passes, and keeps its stage", ErrorKind::internal);
  options_ = options;
  buckets_.clear();
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

std::size_t UnitSchedule::sharded_units() const {
  return static_cast<std::size_t>(std::ranges::count_if(units_, &ScheduledUnit::shards_parameters));
}

void UnitSchedule::gather(std::size_t unit) {
  if (!units_[unit].shards_parameters || whole_[unit]) return;
  whole_[unit] = true;
  fetched_[unit] = false;
  add(Kind::gather, unit);
}

// What is to be read for one of the uses that are expected, if there is one.
void UnitSchedule::fetch_use(std::int64_t use) {
  if (use < 0 || use >= static_cast<std::int64_t>(uses_.size())) return;
  for (const std::size_t unit : module_units_[uses_[static_cast<std::size_t>(use)]]) {
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

void UnitSchedule::release_module(std::size_t module) {
  for (const std::size_t unit : module_units_[module]) release(unit);
}

UnitSchedule::Actions UnitSchedule::pass_begins(const UnitPass& pass) {
  end_forward();
  if (pass.kind != UnitPass::Kind::forward) begin_backward(pass);
  else is_told_of_forward_ = true;
  next_ = 0;
  return take();
}

// What a pass has used is what the next one is expected to use.
void UnitSchedule::end_forward() {
  if (uses_now_.empty()) return;
  uses_ = std::exchange(uses_now_, {});
  next_ = 0;
  first_use_.assign(module_units_.size(), -1);
  for (std::size_t use = uses_.size(); use-- > 0;) first_use_[uses_[use]] = static_cast<std::int64_t>(use);
}

// Puts `next_` behind the use that begins: the expected one, or else the next one of the module, or its first. A module
// that nobody expects stands between two uses.
void UnitSchedule::advance(std::size_t module) {
  const auto begin = uses_.begin(), end = uses_.end();
  auto found = std::find(begin + static_cast<std::ptrdiff_t>(next_), end, module);
  if (found == end) found = std::find(begin, end, module);
  if (found != end) next_ = static_cast<std::size_t>(found - begin) + 1;
}

// Whether one of the next `count` uses that are expected is the module's.
bool UnitSchedule::is_soon(std::size_t module, std::size_t count) const {
  const auto begin = uses_.begin() + static_cast<std::ptrdiff_t>(next_);
  const auto end = begin + static_cast<std::ptrdiff_t>(std::min(count, uses_.size() - next_));
  return std::find(begin, end, module) != end;
}

// Before a pass was seen to end: whether another one begins, with the module that the first began with.
bool UnitSchedule::begins_again(std::size_t module) const {
  if (is_told_of_forward_ || !uses_.empty() || uses_now_.empty() || uses_now_.front() != module) return false;
  const bool is_alone = std::ranges::count_if(running_, [](int uses) { return uses > 0; }) == 1;
  return is_alone && std::ranges::any_of(uses_now_, [&](std::size_t other) { return other != module; });
}

void UnitSchedule::begin_use(std::size_t module) {
  if (begins_again(module)) end_forward();
  advance(module);
  if (uses_now_.size() < kMostUses) uses_now_.push_back(module);
  awaited_[module] = false;
  release_unexpected();
  gather_module(module);
  const std::size_t end = std::min(next_ + ahead(), uses_.size());
  for (std::size_t use = next_; use < end; ++use) {
    awaited_[uses_[use]] = true;
    gather_module(uses_[use]);
  }
  fetch_use(static_cast<std::int64_t>(end));
}

// A use inside of another one of the same module is none of its own.
UnitSchedule::Actions UnitSchedule::forward_begins(std::size_t module) {
  if (running_[module]++ == 0) begin_use(module);
  for (const std::size_t unit : module_units_[module]) add(Kind::wait_gathered, unit);
  return take();
}

// What was gathered or kept for a use that is not expected any more, as the pass has taken another way.
void UnitSchedule::release_unexpected() {
  for (std::size_t module = 0; module < awaited_.size(); ++module)
    if (awaited_[module] && !is_soon(module, ahead())) {
      awaited_[module] = false;
      if (goes_after_forward(module)) release_module(module);
    }
}

bool UnitSchedule::goes_after_forward(std::size_t module) const {
  return options_.reshard_after_forward && running_[module] == 0 && !units_[module_units_[module].front()].root;
}

UnitSchedule::Actions UnitSchedule::forward_ends(std::size_t module, bool backward_follows) {
  if (--running_[module] > 0) return {};
  const bool may_be_last = next_ == uses_.size();
  awaited_[module] = is_soon(module, std::max<std::size_t>(ahead(), 1)) ||
                     (may_be_last && options_.keep_last_unit && backward_follows);
  if (!awaited_[module] && goes_after_forward(module)) release_module(module);
  return take();
}

std::int64_t UnitSchedule::uses_of(std::size_t unit) const { return std::ranges::count(uses_, units_[unit].module); }

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
  end_forward();
  awaited_.assign(awaited_.size(), false);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) release(unit);
  return take();
}

}  // namespace keel
