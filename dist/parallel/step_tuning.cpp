#include "keel/dist/parallel/step_tuning.h"

#include <algorithm>
#include <utility>

#include "keel/runtime/memory_limit.h"
#include "keel/runtime/stopwatch.h"

namespace keel {
namespace {

constexpr std::string_view kAlgorithm = "algorithm", kBucket = "bucket", kPrefetch = "prefetch";

ShardingOptions with_bucket(ShardingOptions options, std::int64_t bytes) {
  options.bucket = bytes;
  options.first_bucket = std::min(options.first_bucket, bytes);
  return options;
}

std::int64_t most_values(std::span<const TunedAxis> axes) {
  std::size_t most = 0;
  for (const TunedAxis& axis : axes) most = std::max(most, axis.values.size());
  return static_cast<std::int64_t>(most);
}

// None where there is one alone that is of use.
std::vector<int> tried_prefetches(const ShardedOptions& options, std::size_t sharded_units) {
  std::vector<int> tried;
  for (const int count : options.tuning.prefetches)
    if (static_cast<std::size_t>(count) < sharded_units) tried.push_back(count);
  if (tried.size() < 2) tried.clear();
  return tried;
}

}  // namespace

ShardingOptions largest_tried(const ShardedOptions& options, std::size_t sharded_units) {
  ShardingOptions largest = options.sharding;
  if (!largest.tunes()) return largest;
  const std::vector<int> tried = tried_prefetches(options, sharded_units);
  if (!tried.empty()) largest.prefetch = std::ranges::max(tried);
  return largest;
}

StepTuning::StepTuning(const ShardedOptions& options, const UnitSchedule& schedule,
                       std::span<const std::string> algorithms, const Context& context, Communicator& ranks)
    : context_(context),
      told_(options.sharding),
      tuner_(make_axes(options, schedule, algorithms), options.tuning.steps),
      longest_(most_values(tuner_.axes()), {ranks, context.host(), context, waited_ms_}, ranks.size()) {}

std::vector<TunedAxis> StepTuning::make_axes(const ShardedOptions& options, const UnitSchedule& schedule,
                                             std::span<const std::string> algorithms) {
  const TuningOptions& tuning = options.tuning;
  std::vector<TunedAxis> axes;
  axes.push_back({.name = std::string(kAlgorithm), .values = {algorithms.begin(), algorithms.end()}});

  TunedAxis& buckets = axes.emplace_back(TunedAxis{.name = std::string(kBucket), .values = {}});
  std::vector<std::vector<std::vector<std::size_t>>> made;
  for (const std::int64_t bytes : tuning.buckets) {
    UnitSchedule trial = schedule;
    trial.resize(with_bucket(told_, bytes));
    if (std::ranges::count(made, trial.buckets()) > 0) continue;
    made.push_back(trial.buckets());
    buckets_.push_back(bytes);
    buckets.values.push_back(binary_size(static_cast<double>(bytes)));
  }

  TunedAxis& prefetches = axes.emplace_back(TunedAxis{.name = std::string(kPrefetch), .values = {}});
  prefetches_ = tried_prefetches(options, schedule.sharded_units());
  for (const int count : prefetches_) prefetches.values.push_back(concat(count));
  std::erase_if(axes, [](const TunedAxis& axis) { return axis.values.size() < 2; });
  return axes;
}

const TunedAxis* StepTuning::axis(std::string_view name) const {
  const std::span<const TunedAxis> begun = tuner_.begun();
  const auto found = std::ranges::find(begun, name, &TunedAxis::name);
  return found == begun.end() ? nullptr : &*found;
}

ShardingOptions StepTuning::sharding() const {
  ShardingOptions sharding = told_;
  if (const TunedAxis* const bucket = axis(kBucket)) sharding = with_bucket(sharding, buckets_[bucket->value]);
  if (const TunedAxis* const ahead = axis(kPrefetch)) sharding.prefetch = prefetches_[ahead->value];
  return sharding;
}

std::size_t StepTuning::algorithm() const {
  const TunedAxis* const algorithm = axis(kAlgorithm);
  return algorithm == nullptr ? 0 : algorithm->value;
}

void StepTuning::step_begins() {
  if (began_ == 0) began_ = milliseconds_now();
}

void StepTuning::step_ends() {
  context_.synchronize();
  if (!tuner_.step_took(milliseconds_now() - std::exchange(began_, 0))) return;
  std::ranges::copy(tuner_.measured(), longest_.mine().data<double>());
  longest_.add(CombineOp::maximum);
  tuner_.choose({longest_.all().data<double>(), tuner_.measured().size()});
}

}  // namespace keel
