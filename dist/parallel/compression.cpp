#include "keel/dist/parallel/compression.h"

#include <algorithm>

namespace keel {

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

}  // namespace keel
