#pragma once
// The ways to compress gradients, and what each needs.

#include <cstdint>
#include <optional>
#include <string_view>

#include "keel/runtime/dtype.h"

namespace keel {

// Error feedback (Seide et al. 2014; Karimireddy et al. 2019): the residual, which is what a step's messages leave out,
// is added to the next gradient. Each rank keeps the residual of the whole unit's gradient, in fp32. While a step is
// under way it keeps the one before that step as well, so that a skipped step changes nothing.
struct CompressionKind {
  std::string_view name;
  std::optional<DType> wire;  // what numbers are sent as, where that is all
  bool feedback;
  bool codec;  // whether it sends bytes that a codec makes
  std::string_view meaning;
};
inline constexpr CompressionKind kCompressions[] = {
    {"none", std::nullopt, false, false, "as sharding.wire says"},
    {"bf16", DType::bf16, false, false, "rounded to bf16"},
    {"fp16", DType::f16, false, false, "rounded to fp16"},
    {"int8", std::nullopt, true, true,
     "a byte each, and a scale for 256 of them; what rounding leaves out is sent later"},
    {"int4", std::nullopt, true, true,
     "half a byte each, and a scale for 256 of them; what rounding leaves out is sent later"},
    {"qgz", std::nullopt, false, true,
     "as codes of gradient_compression.bits to the ranks of a sharding.subgroup, and their sums likewise to the other "
     "ones, or at once where there are no subgroups; nothing is kept (Wang et al. 2023, ZeRO++)"},
    {"topk", std::nullopt, true, true, "the largest fraction of the numbers; the rest is added to the next gradient"},
    {"powersgd", std::nullopt, true, false,
     "products of two narrow matrices, of gradient_compression.rank columns (Vogels et al. 2019); the rest is sent "
     "later"},
};

struct Compression {
  // In the order of kCompressions.
  enum class Type : unsigned char { none, bf16, fp16, int8, int4, qgz, top_k, power_sgd };
  Type type = Type::none;
  double fraction = 0.01;  // top_k: of each shard
  std::int64_t rank = 4;   // power_sgd: columns
  enum class Bits : unsigned char { four, eight };
  Bits bits = Bits::four;  // qgz: of a number
  const CompressionKind& kind() const { return kCompressions[static_cast<std::size_t>(type)]; }
  bool operator==(const Compression&) const = default;
};

inline constexpr std::string_view kCompressionBits[] = {"4", "8"};

}  // namespace keel
