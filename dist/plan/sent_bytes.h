#pragma once
// What one rank sends for a planned collective, read off the algorithm's schedule.

#include <cstdint>
#include <string_view>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/parallel/planned_collective.h"
#include "keel/dist/parallel/rank_groups.h"

namespace keel {

class SentBytes {
 public:
  // Of rank `rank` of so many. The Error of find_algorithm().
  SentBytes(std::string_view algorithm, int ranks, int rank)
      : algorithm_(find_algorithm(algorithm)), shape_{.rank = rank, .size = ranks} {}
  // Of rank `rank` of all, among those on an axis.
  static SentBytes on(Axis axis, std::string_view algorithm, const RankPlace& place, int rank);

  std::int64_t of(const PlannedCollective& collective) const;
  // Elements, of a collective of `count` of them.
  std::int64_t elements(CollectiveKind kind, std::int64_t count) const;

 private:
  const Algorithm& algorithm_;
  CollectiveShape shape_;
};

}  // namespace keel
