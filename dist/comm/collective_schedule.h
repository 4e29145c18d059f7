#pragma once
// The schedule by which one rank does a collective with an algorithm, and those of the latest collectives.

#include <memory>
#include <vector>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/communicator.h"

namespace keel {

// `nodes`: of each rank. A barrier has no steps.
Schedule schedule_of(const Algorithm& algorithm, const Collective& collective, int rank, const std::vector<int>& nodes);
CollectiveShape shape_of(const Collective& collective, int rank, const std::vector<int>& nodes);

// Throws an Error where the algorithm cannot add as the collective asks.
void check_order(const Algorithm& algorithm, const Collective& collective);

// What the combinations of such a schedule do. An algorithm that passes partial sums on cannot divide them. A mean is
// then a sum that finish_mean() divides: rounded once more, and in integers of the dtype.
CombineOp op_of(const Algorithm& algorithm, CombineOp op);
// The last of a schedule's steps: the rank's output, where it has one, becomes the mean.
void finish_mean(const Algorithm& algorithm, const Collective& collective, int ranks);

// For one algorithm and rank: the steps of a training ask for the same collectives again and again.
class ScheduleCache {
 public:
  std::shared_ptr<const Schedule> find(const Algorithm& algorithm, const Collective& collective, int rank,
                                       const std::vector<int>& nodes);

 private:
  static constexpr std::size_t kMost = 64;
  struct Entry {
    CollectiveKind kind;
    DType dtype;
    std::int64_t count;
    int peer;
    std::vector<std::int64_t> counts, incoming;
    std::shared_ptr<const Schedule> schedule;
  };
  std::vector<Entry> entries_;
  std::size_t oldest_ = 0;
};

}  // namespace keel
