// The tables of engine options as a whole: what each takes, and which of them a run may change when it goes on.

#include "keel/dist/parallel/engine_keys.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "keel/runtime/error.h"

namespace keel {
namespace {

template <class Options>
std::string limits_of(const OptionKey<Options>& key) {
  std::string limits;
  if (std::isfinite(key.low)) limits += concat(key.low_open ? " above " : " from ", key.low);
  if (std::isfinite(key.high)) limits += concat(" to ", static_cast<std::int64_t>(key.high));
  if (key.unit > 1) limits += concat(", in units of ", key.unit);
  if (key.automatic) limits += concat(", auto is ", *key.automatic);
  if (!key.standard.empty()) limits += concat(", usually ", key.standard);
  return limits;
}

TEST(EngineOptions, HaveTheseLimitsAndUsualValues) {
  std::vector<std::string> all;
  visit_options({}, [&](std::string_view section, const auto& keys, const auto&) {
    for (const auto& key : keys)
      if (const std::string limits = limits_of(key); !limits.empty()) all.push_back(concat(section, key.key, limits));
  });
  EXPECT_EQ(all, (std::vector<std::string>{
                     "clip from 0, usually 1.0", "loss_scale.initial above 0, usually 65536",
                     "sharding.bucket above 0, in units of 1048576, auto is 0",
                     "sharding.first_bucket above 0, in units of 1048576", "sharding.prefetch from 0 to 64",
                     "sharding.persistence_threshold from 0", "sharding.group from 0 to 1048576",
                     "sharding.subgroup from 0 to 1048576", "sharding.virtual_ranks from 0 to 1048576",
                     "sharding.offload_budget above 0, in units of 1048576", "sharding.offload_threads from 1 to 64",
                     "gradient_compression.fraction above 0 to 1", "gradient_compression.rank from 1 to 4096",
                     "loss_scale.growth from 1, usually 2", "loss_scale.backoff above 0 to 1, usually 0.5",
                     "loss_scale.interval from 1", "loss_scale.hysteresis from 1 to 1000",
                     "loss_scale.floor from 0, usually 1"}));
}

// A change of any other one gives the same bits, so that a run that goes on says nothing about it.
TEST(EngineOptions, OfWhichTheseAloneChangeTheNumbers) {
  std::vector<std::string> all;
  visit_options({}, [&](std::string_view section, const auto& keys, const auto&) {
    for (const auto& key : keys)
      if (!key.same_numbers) all.push_back(concat(section, key.key));
  });
  EXPECT_EQ(all, (std::vector<std::string>{
                     "seed", "clip", "clip_by", "sharding.wire", "loss_scale.initial", "sharding.group",
                     "sharding.subgroup", "sharding.weight_code", "sharding.virtual_ranks",
                     "sharding.offload_optimizer", "gradient_compression.type", "gradient_compression.fraction",
                     "gradient_compression.rank", "gradient_compression.bits", "loss_scale.growth",
                     "loss_scale.backoff", "loss_scale.interval", "loss_scale.hysteresis", "loss_scale.floor"}));
}

}  // namespace
}  // namespace keel
