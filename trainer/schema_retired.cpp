// Keys of older versions.

#include "keel/runtime/error.h"
#include "keel/trainer/schema.h"

namespace keel {
namespace {

// Stages 0 and 1 had no choice then.
std::string_view accumulation_of(std::string_view reduce_each_backward, const Config& so_far) {
  KEEL_CHECK(reduce_each_backward == "true" || reduce_each_backward == "false", "expects true or false, got '",
             reduce_each_backward, "'");
  const bool had_choice = so_far.strategy.stage >= Strategy::Stage::zero2;
  return name_of(had_choice && reduce_each_backward == "true" ? Accumulation::each_backward : Accumulation::deferred);
}

constexpr RetiredKey kRetired[] = {{"sharding.reduce_each_backward", "sharding.accumulation", accumulation_of}};

}  // namespace

std::span<const RetiredKey> retired_keys() { return kRetired; }

const RetiredKey* retired_for(std::string_view key) {
  for (const RetiredKey& retired : kRetired)
    if (retired.successor == key) return &retired;
  return nullptr;
}

}  // namespace keel
