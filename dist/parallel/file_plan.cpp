#include "keel/dist/parallel/file_plan.h"

#include <numeric>

#include "keel/runtime/memory_limit.h"
#include "keel/runtime/page_file.h"

namespace keel {
namespace {

std::int64_t sum_of(const std::vector<std::int64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

}  // namespace

std::int64_t UnitPages::of_update() const { return sum_of(updated) + sum_of(read) + hosted; }
std::int64_t UnitPages::stored() const { return sum_of(updated); }

std::int64_t UnitPages::room() const {
  std::int64_t sum = 0;
  for (const std::vector<std::int64_t>* each : {&updated, &read, &others})
    for (const std::int64_t bytes : *each) sum += PageFile::room_of(bytes);
  return sum;
}

UnitPages pages_of(const UnitSplit& unit, const PrecisionPolicy& policy, const Optimizer& optimizer, bool on_device) {
  UnitPages pages;
  const auto value = static_cast<std::int64_t>(size_of(unit.values)),
             gradient = static_cast<std::int64_t>(size_of(unit.gradient));
  const std::int64_t wide = policy.parameter == DType::f64 ? 8 : 4, owned = unit.owned.count();
  const std::int64_t values = unit.pages_values ? (unit.keeps_own() ? owned : unit.whole) * value : 0;
  if (unit.pages_values && !unit.files_values) pages.hosted = unit.trainable ? values : 0;
  if (unit.files_values) (unit.trainable ? pages.updated : pages.others).push_back(values);
  if (unit.files_state) {
    if (policy.master()) pages.updated.push_back(owned * wide);
    if (on_device) pages.updated.push_back(owned * value);
    for (std::size_t kind = 0; kind < optimizer.state_names().size(); ++kind) pages.updated.push_back(owned * wide);
  }
  if (unit.files_sums) pages.read.push_back(unit.shard.count() * gradient);
  if (unit.files_gradient) (unit.files_sums ? pages.others : pages.read).push_back(unit.whole * gradient);
  return pages;
}

std::int64_t room_in_file(std::span<const FlatBuffer> layout, std::span<const UnitSplit> units,
                          const PrecisionPolicy& policy, const Optimizer& optimizer, bool on_device) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < layout.size(); ++i) sum += pages_of(units[i], policy, optimizer, on_device).room();
  return sum;
}

void check_budget(std::span<const FlatBuffer> layout, std::span<const UnitSplit> units, const PrecisionPolicy& policy,
                  const Optimizer& optimizer, bool on_device, std::int64_t budget) {
  for (std::size_t i = 0; i < layout.size(); ++i) {
    const std::int64_t bytes = units[i].trainable ? pages_of(units[i], policy, optimizer, on_device).of_update() : 0;
    KEEL_CHECK(bytes <= budget, "sharding.offload_budget is ", binary_size(static_cast<double>(budget)),
               ", and an update has ", binary_size(static_cast<double>(bytes)), " of ", name_of_unit(layout[i]),
               " in memory at a time of what lies in files");
  }
}

}  // namespace keel
