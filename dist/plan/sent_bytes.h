#pragma once
// What one rank sends for a planned collective.

#include <cstdint>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/collective_route.h"
#include "keel/dist/parallel/planned_collective.h"
#include "keel/dist/parallel/rank_groups.h"

namespace keel {

class SentBytes {
 public:
  // Of rank `rank` of so many.
  SentBytes(const CollectiveRoute& route, int ranks, int rank) : route_(route), shape_{.rank = rank, .size = ranks} {}
  // Of rank `rank` of all, among those on an axis.
  static SentBytes on(Axis axis, const CollectiveRoute& route, const RankPlace& place, int rank);

  std::int64_t of(const PlannedCollective& collective) const;
  // Elements, of a collective of `count` of them. Throws the Errors of elements_sent().
  std::int64_t elements(CollectiveKind kind, std::int64_t count) const;

 private:
  CollectiveRoute route_;
  CollectiveShape shape_;
};

}  // namespace keel
