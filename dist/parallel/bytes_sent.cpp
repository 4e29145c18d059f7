#include "keel/dist/parallel/bytes_sent.h"

#include "keel/runtime/error.h"

namespace keel {

std::int64_t Sender::bytes(const PlannedCollective& collective) const {
  const bool has_counts = collective.of_matrices && collective.kind == CollectiveKind::all_to_all;
  return collective.times * collective.width *
         (has_counts ? collective.count - collective.stays : elements(collective.kind, collective.count));
}

std::int64_t Sender::elements(CollectiveKind kind, std::int64_t count) const {
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

std::int64_t Sender::sent(Schedule (*write)(const CollectiveShape&), std::int64_t count) const {
  CollectiveShape shape = shape_;
  shape.count = count;
  return write(shape).elements_sent();
}

Sender sender_on(Axis axis, std::string_view algorithm, const RankPlace& place, int rank) {
  switch (axis) {
    case Axis::replicas: return {algorithm, place.groups, rank / place.ranks};
    case Axis::inside: return {algorithm, place.subgroup, place.rank % place.subgroup};
    case Axis::across: return {algorithm, place.ranks / place.subgroup, place.rank / place.subgroup};
    case Axis::shards: break;
  }
  return {algorithm, place.ranks, place.rank};
}

}  // namespace keel
