#include "keel/dist/comm/collective_schedule.h"

#include "keel/dist/comm/collective_table.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

// Above it the root of a broadcast sends parts that the others exchange.
constexpr std::int64_t kScatteredBroadcast = std::int64_t{256} << 10;  // bytes
// Up to it the root of a reduce adds alone what all ranks send it.
constexpr std::int64_t kReducedByRoot = std::int64_t{8} << 10;  // bytes

}  // namespace

CollectiveShape shape_of(const Collective& c, int rank, const std::vector<int>& nodes) {
  return {.rank = rank,
          .size = static_cast<int>(nodes.size()),
          .count = c.count(),
          .node = nodes,
          .counts = c.counts,
          .incoming = c.incoming};
}

Schedule schedule_of(const Algorithm& algorithm, const Collective& c, int rank, const std::vector<int>& nodes) {
  const CollectiveShape shape = shape_of(c, rank, nodes);
  const std::int64_t bytes = c.count() * static_cast<std::int64_t>(size_of(c.dtype()));
  switch (c.kind) {
    case CollectiveKind::all_reduce: return algorithm.all_reduce(shape);
    case CollectiveKind::reduce_scatter: return algorithm.reduce_scatter(shape);
    case CollectiveKind::all_gather: return algorithm.all_gather(shape);
    case CollectiveKind::all_to_all: return all_to_all(shape);
    case CollectiveKind::reduce:
      return algorithm.name == "direct" && bytes <= kReducedByRoot ? reduce_by_root(shape, c.peer)
                                                                   : reduce_by_parts(algorithm, shape, c.peer);
    case CollectiveKind::gather: return gather(shape, c.peer);
    case CollectiveKind::scatter: return scatter(shape, c.peer);
    case CollectiveKind::broadcast:
      return shape.size > 2 && bytes > kScatteredBroadcast ? broadcast_scattered(shape, c.peer)
                                                           : broadcast_tree(shape, c.peer);
    case CollectiveKind::send: return {{{.sends = {{c.peer, {Place::input, {0, c.count()}}}}}}, 0};
    case CollectiveKind::receive: return {{{.receives = {{c.peer, {Place::output, {0, c.count()}}}}}}, 0};
    case CollectiveKind::barrier: break;
  }
  return {};
}

void check_order(const Algorithm& algorithm, const Collective& c) {
  if (!traits_of(c.kind).adds || c.op != CombineOp::pairwise_sum || adds_pairwise(algorithm)) return;
  std::string others;
  for (const Algorithm* const other : algorithms())
    if (adds_pairwise(*other)) others += concat(others.empty() ? "" : ", ", other->name);
  throw Error(concat(c, ": the algorithm ", algorithm.name, " adds ", algorithm.order, "; pairs of ranks are added by ",
                     others),
              ErrorKind::unsupported);
}

CombineOp op_of(const Algorithm& algorithm, CombineOp op) {
  return op == CombineOp::mean && !algorithm.adds_at_once ? CombineOp::sum : op;
}

void finish_mean(const Algorithm& algorithm, const Collective& c, int ranks) {
  if (!traits_of(c.kind).adds || c.op == op_of(algorithm, c.op) || !c.output.defined()) return;
  kernels::combine({{&c.output, 1}, c.output, c.op, ranks});
}

std::shared_ptr<const Schedule> ScheduleCache::find(const Algorithm& algorithm, const Collective& c, int rank,
                                                    const std::vector<int>& nodes) {
  for (const Entry& entry : entries_)
    if (entry.kind == c.kind && entry.dtype == c.dtype() && entry.count == c.count() && entry.peer == c.peer &&
        entry.counts == c.counts && entry.incoming == c.incoming)
      return entry.schedule;
  const Entry made{c.kind,
                   c.dtype(),
                   c.count(),
                   c.peer,
                   c.counts,
                   c.incoming,
                   std::make_shared<const Schedule>(schedule_of(algorithm, c, rank, nodes))};
  if (entries_.size() < kMost) entries_.push_back(made);
  else entries_[oldest_++ % kMost] = made;
  return made.schedule;
}

}  // namespace keel
