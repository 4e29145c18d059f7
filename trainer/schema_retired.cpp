// Keys of older versions.

#include "keel/runtime/error.h"
#include "keel/trainer/schema_rows.h"

namespace keel {
namespace {

// Stages 0 and 1 had no choice then.
std::string_view accumulation_of(std::string_view reduce_each_backward, const Settings& so_far) {
  KEEL_CHECK(reduce_each_backward == "true" || reduce_each_backward == "false", "expects true or false, got '",
             reduce_each_backward, "'");
  const bool had_choice = static_cast<const Config&>(so_far).strategy.stage >= Strategy::Stage::zero2;
  return name_of(had_choice && reduce_each_backward == "true" ? Accumulation::each_backward : Accumulation::deferred);
}

}  // namespace

std::vector<RetiredKey> retired_keys() {
  return {{"sharding.reduce_each_backward", "sharding.accumulation", accumulation_of}};
}

}  // namespace keel
