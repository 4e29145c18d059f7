#include "keel/dist/comm/elements_sent.h"

#include "keel/runtime/error.h"

namespace keel {

std::int64_t elements_sent(const Algorithm& algorithm, CollectiveKind kind, const CollectiveShape& shape) {
  const std::int64_t own = part({0, shape.count}, shape.size, shape.rank).count();
  const bool is_direct = algorithm.name == "direct";  // whose formula is quicker than its schedule
  switch (kind) {
    case CollectiveKind::all_to_all: return shape.count - own;
    case CollectiveKind::reduce_scatter:
      return is_direct ? shape.count - own : algorithm.reduce_scatter(shape).elements_sent();
    case CollectiveKind::all_gather:
      return is_direct ? (shape.size - 1) * own : algorithm.all_gather(shape).elements_sent();
    case CollectiveKind::all_reduce:  // first to whoever adds a part, then that to all
      return is_direct ? shape.count - own + (shape.size - 1) * own : algorithm.all_reduce(shape).elements_sent();
    default: throw Error(concat("nothing is planned of ", name_of(kind)), ErrorKind::internal);
  }
}

}  // namespace keel
