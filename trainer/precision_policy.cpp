// Which numbers a configuration trains in.

#include <optional>

#include "keel/trainer/assembly.h"

namespace keel {
namespace {

DType dtype_of(Strategy::Precision precision) {
  switch (precision) {
    case Strategy::Precision::bf16: return DType::bf16;
    case Strategy::Precision::fp16: return DType::f16;
    default: return DType::f32;
  }
}

std::optional<DType> dtype_of(ShardingConfig::Number number) {
  switch (number) {
    case ShardingConfig::Number::automatic: break;
    case ShardingConfig::Number::fp32: return DType::f32;
    case ShardingConfig::Number::bf16: return DType::bf16;
    case ShardingConfig::Number::fp16: return DType::f16;
  }
  return std::nullopt;
}

}  // namespace

PrecisionPolicy precision_policy(const Config& config) {
  PrecisionPolicy policy = PrecisionPolicy::of(dtype_of(config.strategy.precision));
  if (const auto gradient = dtype_of(config.sharding.gradient)) policy.gradient = *gradient;
  return policy;
}

}  // namespace keel
