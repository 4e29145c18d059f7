#include "keel/dist/plan/sent_bytes.h"

#include "keel/dist/comm/elements_sent.h"

namespace keel {

SentBytes SentBytes::on(Axis axis, const CollectiveRoute& route, const RankPlace& place, int rank) {
  switch (axis) {
    case Axis::replicas: return {route, place.groups, rank / place.ranks};
    case Axis::inside: return {route, place.subgroup, place.rank % place.subgroup};
    case Axis::across: return {route, place.ranks / place.subgroup, place.rank / place.subgroup};
    case Axis::shards: break;
  }
  return {route, place.ranks, place.rank};
}

std::int64_t SentBytes::of(const PlannedCollective& c) const {
  const bool has_counts = c.of_matrices && c.kind == CollectiveKind::all_to_all;
  return c.times * c.width * (has_counts ? c.count - c.stays : elements(c.kind, c.count));
}

std::int64_t SentBytes::elements(CollectiveKind kind, std::int64_t count) const {
  CollectiveShape shape = shape_;
  shape.count = count;
  return elements_sent(route_, kind, shape);
}

}  // namespace keel
