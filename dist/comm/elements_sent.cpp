#include "keel/dist/comm/elements_sent.h"

#include "keel/runtime/error.h"

namespace keel {
namespace {

using Nccl = CollectiveRoute::Nccl;

std::int64_t sent_by_algorithm(const Algorithm& algorithm, CollectiveKind kind, const CollectiveShape& shape) {
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

}  // namespace

std::int64_t elements_sent(const CollectiveRoute& route, CollectiveKind kind, const CollectiveShape& shape) {
  const Algorithm& algorithm = find_algorithm(route.algorithm);
  const bool passes_on_all = route.nccl == Nccl::gathers_and_adds && kind != CollectiveKind::all_to_all;
  if (passes_on_all || (route.nccl == Nccl::gathers && kind == CollectiveKind::all_gather))
    return elements_passed_on(shape, kind);
  // The sums of its parts, which NCCL then gathers.
  if (route.nccl == Nccl::gathers && kind == CollectiveKind::all_reduce && algorithm.name == "direct")
    return sent_by_algorithm(algorithm, CollectiveKind::reduce_scatter, shape) +
           elements_passed_on(shape, CollectiveKind::all_gather);
  return sent_by_algorithm(algorithm, kind, shape);
}

std::int64_t elements_passed_on(const CollectiveShape& shape, CollectiveKind kind, int root) {
  if (shape.size == 1) return 0;
  const int next = (shape.rank + 1) % shape.size;
  const Cut cut(shape.count, shape.size, shape.counts);
  const auto all_but = [&](int rank) { return shape.count - cut.of(rank).count(); };
  switch (kind) {
    case CollectiveKind::reduce_scatter: return all_but(shape.rank);
    case CollectiveKind::all_gather: return all_but(next);
    case CollectiveKind::all_reduce: return all_but(shape.rank) + all_but(next);
    case CollectiveKind::reduce: return shape.rank == root ? 0 : shape.count;
    case CollectiveKind::broadcast: return next == root ? 0 : shape.count;
    default: return 0;
  }
}

}  // namespace keel
