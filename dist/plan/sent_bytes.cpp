#include "keel/dist/plan/sent_bytes.h"

#include "keel/dist/comm/elements_sent.h"

namespace keel {

SentBytes SentBytes::on(Axis axis, std::string_view algorithm, const RankPlace& place, int rank) {
  switch (axis) {
    case Axis::replicas: return {algorithm, place.groups, rank / place.ranks};
    case Axis::inside: return {algorithm, place.subgroup, place.rank % place.subgroup};
    case Axis::across: return {algorithm, place.ranks / place.subgroup, place.rank / place.subgroup};
    case Axis::shards: break;
  }
  return {algorithm, place.ranks, place.rank};
}

std::int64_t SentBytes::of(const PlannedCollective& c) const {
  const bool has_counts = c.of_matrices && c.kind == CollectiveKind::all_to_all;
  return c.times * c.width * (has_counts ? c.count - c.stays : elements(c.kind, c.count));
}

std::int64_t SentBytes::elements(CollectiveKind kind, std::int64_t count) const {
  CollectiveShape shape = shape_;
  shape.count = count;
  return elements_sent(algorithm_, kind, shape);
}

}  // namespace keel
