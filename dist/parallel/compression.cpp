#include "keel/dist/parallel/compression.h"

#include <algorithm>

#include "keel/dist/parallel/gradient_compressor.h"
#include "keel/kernels/codec.h"

namespace keel {
namespace {

constexpr std::int64_t kWide = 4;  // bytes of fp32

CompressionPlan plan_factors(const FlatBuffer& layout, const Compression& compression) {
  CompressionPlan plan;
  std::int64_t plain = layout.numel;
  for (const LowRank& part : low_rank_parts(layout, compression.rank)) {
    plain -= part.rows * part.columns;
    plan.reduced += part.rows * part.rank;
    plan.reduced_later += part.rank * part.columns;
  }
  plan.reduced += plain;
  plan.begun = kWide * plan.reduced;
  plan.more = kWide * plan.reduced_later;
  plan.state = kWide * (layout.padded + plan.reduced_later);
  return plan;
}

}  // namespace

std::vector<LowRank> low_rank_parts(const FlatBuffer& layout, std::int64_t rank) {
  std::vector<LowRank> parts;
  for (std::size_t i = 0; i < layout.segments.size(); ++i) {
    const Segment& segment = layout.segments[i];
    if (segment.shape.size() < 2 || segment.numel == 0) continue;
    const std::int64_t rows = segment.shape[0], columns = segment.numel / rows;
    const std::int64_t used = std::min({rank, rows, columns});
    if (used * (rows + columns) < segment.numel) parts.push_back({i, rows, columns, used});
  }
  return parts;
}

Codec codec_of(const Compression& compression) {
  return {.kind = compression.type == Compression::Type::int8 ? Codec::Kind::int8 : Codec::Kind::top_k,
          .fraction = compression.fraction};
}

CompressionPlan plan_compression(const FlatBuffer& layout, const Compression& compression, int ranks, bool whole,
                                 DType wire) {
  KEEL_CHECK(compression.kind().feedback, compression.kind().name, " is a matter of the wire's dtype alone");
  if (compression.type == Compression::Type::power_sgd) return plan_factors(layout, compression);
  const std::int64_t n = ranks, part = layout.padded / n;
  const std::int64_t payload = n * codec_of(compression).bytes(part), width = static_cast<std::int64_t>(size_of(wire));
  CompressionPlan plan{.state = kWide * layout.padded};
  // Payloads to all, or sums of shards: whatever is less.
  if (whole && payload <= payload / n + part * width) {
    plan.gathered = n * payload;
    plan.begun = payload + n * payload;
    return plan;
  }
  plan.exchanged = payload;
  plan.begun = 2 * payload;
  if (!whole) return plan;
  plan.gathered_sums = layout.padded;
  plan.more = layout.padded * width;
  return plan;
}

}  // namespace keel
