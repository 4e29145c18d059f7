#pragma once
// The communicators of an engine, by axis.

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "keel/dist/parallel/axes.h"
#include "keel/dist/parallel/sharded_options.h"

namespace keel {

// The number of equal parts that a unit is cut into; lay_out() takes it as `shards`. With virtual ranks these are their
// shards, of which a rank has neighbouring ones.
int shard_ranks(const ShardedOptions& options, int ranks);
// Where rank `rank` of `ranks` stands. The options must fit the number of ranks.
RankPlace place_of(const ShardedOptions& options, int ranks, int rank);
// Throws an Error where groups or subgroups do not divide the ranks.
void check_groups(const ShardedOptions& options, int ranks);

class RankGroups {
 public:
  // Every rank of `all`, which must outlive it, makes one at its place.
  RankGroups(Communicator& all, const RankPlace& place, const ShardedOptions& options);
  ~RankGroups();
  RankGroups(const RankGroups&) = delete;
  RankGroups& operator=(const RankGroups&) = delete;

  const RankPlace& place() const { return place_; }
  const Axes& axes() const { return axes_; }
  // Whether this rank is in the first group that there is.
  bool is_first() const { return axes_.replicas == nullptr || axes_.replicas->rank() == 0; }
  // Groups that there are, and which of them this rank's is.
  int count() const { return axes_.replicas == nullptr ? 1 : axes_.replicas->size(); }
  int number() const { return axes_.replicas == nullptr ? 0 : axes_.replicas->rank(); }
  // Throws where a rank has failed with which this one cannot go on.
  void poll() { (survivors_ == nullptr ? all_ : axes_.shards).poll(); }
  // Of parameters and gradients.
  Traffic traffic() const;
  void set_activity(const std::string& activity);

 private:
  Communicator& own(std::unique_ptr<Communicator> communicator);

  RankPlace place_;
  std::vector<std::unique_ptr<Communicator>> owned_;
  const int exceptions_ = std::uncaught_exceptions();
  Communicator& all_;
  SurvivingGroups* survivors_;  // null: all groups end together
  Axes axes_;
};

}  // namespace keel
