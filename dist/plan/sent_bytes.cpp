#include "keel/dist/plan/sent_bytes.h"

#include "keel/runtime/error.h"

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
  const std::int64_t own = part({0, count}, shape_.size, shape_.rank).count();
  const bool is_direct = algorithm_.name == "direct";  // whose formula is quicker than its schedule
  switch (kind) {
    case CollectiveKind::all_to_all: return count - own;
    case CollectiveKind::reduce_scatter: return is_direct ? count - own : sent(algorithm_.reduce_scatter, count);
    case CollectiveKind::all_gather: return is_direct ? (shape_.size - 1) * own : sent(algorithm_.all_gather, count);
    case CollectiveKind::all_reduce:  // first to whoever adds a part, then that to all
      return is_direct ? count - own + (shape_.size - 1) * own : sent(algorithm_.all_reduce, count);
    default: throw Error(concat("a step has no ", name_of(kind)), ErrorKind::internal);
  }
}

std::int64_t SentBytes::sent(Schedule (*write)(const CollectiveShape&), std::int64_t count) const {
  CollectiveShape shape = shape_;
  shape.count = count;
  return write(shape).elements_sent();
}

}  // namespace keel
