#pragma once
// What a rank sends for a collective, by formulas.

#include <cstdint>
#include <string_view>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/parallel/planned_collective.h"
#include "keel/dist/parallel/unit_split.h"

namespace keel {

// One rank of a group, and the elements that it sends for a collective of `count` of them. `algorithm` is a name of
// keel/dist/comm/algorithms.h; the numbers of all but "direct" are read off their schedules.
class Sender {
 public:
  Sender(std::string_view algorithm, int ranks, int rank)
      : algorithm_(find_algorithm(algorithm)), shape_{.rank = rank, .size = ranks} {}

  std::int64_t bytes(const PlannedCollective& collective) const;
  std::int64_t elements(CollectiveKind kind, std::int64_t count) const;

 private:
  std::int64_t sent(Schedule (*write)(const CollectiveShape&), std::int64_t count) const;

  const Algorithm& algorithm_;
  CollectiveShape shape_;
};

// A rank of a run on an axis, where `place` is that rank's.
Sender sender_on(Axis axis, std::string_view algorithm, const RankPlace& place, int rank);

}  // namespace keel
