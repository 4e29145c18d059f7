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
  switch (compression.type) {
    case Compression::Type::int4: return {.kind = Codec::Kind::int4};
    case Compression::Type::qgz:
      return {.kind = compression.bits == Compression::Bits::four ? Codec::Kind::int4 : Codec::Kind::int8};
    case Compression::Type::top_k: return {.kind = Codec::Kind::top_k, .fraction = compression.fraction};
    default: return {.kind = Codec::Kind::int8};
  }
}

}  // namespace keel
