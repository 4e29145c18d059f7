#pragma once
// The communicators of an engine, by axis.

#include <memory>
#include <string>
#include <vector>

#include "keel/dist/parallel/axes.h"
#include "keel/dist/parallel/sharding.h"

namespace keel {

// Where rank `rank` of `ranks` stands. The options must fit the number of ranks.
RankPlace place_of(const ShardingOptions& options, int ranks, int rank);
// Throws an Error where groups or subgroups do not divide the ranks.
void check_groups(const ShardingOptions& options, int ranks);

class RankGroups {
 public:
  // Every rank of `all`, which must outlive it, makes one. `has_subgroups`: somebody sends inside of them.
  RankGroups(Communicator& all, const ShardingOptions& options, bool has_subgroups);

  const RankPlace& place() const { return place_; }
  const Axes& axes() const { return axes_; }
  // Whether this rank's shards count in sums over all ranks, where several groups have the same.
  bool counts() const { return axes_.replicas == nullptr || axes_.replicas->rank() == 0; }
  // Of parameters and gradients.
  Traffic traffic() const;
  void set_activity(const std::string& activity);

 private:
  Communicator& own(std::unique_ptr<Communicator> communicator);

  RankPlace place_;
  std::vector<std::unique_ptr<Communicator>> owned_;
  Communicator& all_;
  Axes axes_;
};

}  // namespace keel
