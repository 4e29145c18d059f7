#include "keel/dist/parallel/rank_groups.h"

#include <utility>

#include "keel/dist/strategies/surviving_groups.h"
#include "keel/runtime/error.h"

namespace keel {

RankPlace place_of(const ShardedOptions& options, int ranks, int rank) {
  const ShardingOptions& sharding = options.sharding;
  const bool in_groups = sharding.group != 0 && (kShardingStages[sharding.stage].optimizer || options.strategy);
  const int of_group = in_groups ? sharding.group : ranks;
  return {.ranks = of_group,
          .rank = rank % of_group,
          .groups = ranks / of_group,
          .subgroup = sharding.subgroup,
          .virtual_ranks = sharding.of_each(ranks)};
}

int shard_ranks(const ShardedOptions& options, int ranks) {
  return options.sharding.dealt_to(place_of(options, ranks, 0).ranks);
}

void check_groups(const ShardedOptions& options, int ranks) {
  const ShardingOptions& sharding = options.sharding;
  KEEL_CHECK(sharding.group >= 0 && (sharding.group == 0 || ranks % sharding.group == 0), "groups of ", sharding.group,
             " ranks do not divide the ", ranks, " that there are");
  const int of_group = place_of(options, ranks, 0).ranks;
  KEEL_CHECK(sharding.subgroup >= 0 && (sharding.subgroup == 0 || of_group % sharding.subgroup == 0), "subgroups of ",
             sharding.subgroup, " ranks do not divide the ", of_group, " that share the shards");
  KEEL_CHECK(!sharding.secondary || sharding.subgroup > 0,
             "secondary shards are those of subgroups, and there are none");
}

RankGroups::RankGroups(Communicator& all, const RankPlace& place, const ShardedOptions& options)
    : place_(place),
      all_(all),
      survivors_(options.survivors),
      axes_{place.groups == 1       ? all
            : survivors_ != nullptr ? own(all.split_apart(all.rank() / place.ranks, place.rank))
                                    : own(all.split(all.rank() / place.ranks, place.rank))} {
  if (survivors_ != nullptr) axes_.replicas = &survivors_->axis();
  else if (place.groups > 1) axes_.replicas = &own(all.split(place.rank, all.rank() / place.ranks));
  const bool sends_inside = options.sharding.secondary || options.compression.type == Compression::Type::qgz;
  if (!sends_inside || !place.has_subgroups()) return;
  const int subgroup = place.rank / place.subgroup, neighbour = place.rank % place.subgroup;
  axes_.inside = &own(axes_.shards.split(subgroup, neighbour));
  axes_.across = &own(axes_.shards.split(neighbour, subgroup));
}

// As of all ranks, whose failure is another one's then.
RankGroups::~RankGroups() {
  if (survivors_ != nullptr && std::uncaught_exceptions() > exceptions_)
    axes_.shards.fail(concat("rank ", all_.rank(), " has failed"));
}

Communicator& RankGroups::own(std::unique_ptr<Communicator> communicator) {
  return *owned_.emplace_back(std::move(communicator));
}

Traffic RankGroups::traffic() const {
  Traffic sum = all_.traffic();
  for (const auto& communicator : owned_) sum.add(communicator->traffic());
  if (survivors_ != nullptr) sum.add(survivors_->axis().traffic());
  return sum;
}

void RankGroups::set_activity(const std::string& activity) {
  all_.set_activity(activity);
  for (const auto& communicator : owned_) communicator->set_activity(activity);
  if (survivors_ != nullptr) survivors_->axis().set_activity(activity);
}

}  // namespace keel
