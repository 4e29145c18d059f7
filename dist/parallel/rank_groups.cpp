#include "keel/dist/parallel/rank_groups.h"

#include <utility>

#include "keel/runtime/error.h"

namespace keel {

RankPlace place_of(const ShardingOptions& options, int ranks, int rank) {
  const bool in_groups = options.group != 0 && kShardingStages[options.stage].optimizer;
  const int of_group = in_groups ? options.group : ranks;
  return {.ranks = of_group,
          .rank = rank % of_group,
          .groups = ranks / of_group,
          .subgroup = options.subgroup == 0 ? of_group : options.subgroup};
}

void check_groups(const ShardingOptions& options, int ranks) {
  KEEL_CHECK(options.group >= 0 && (options.group == 0 || ranks % options.group == 0), "groups of ", options.group,
             " ranks do not divide the ", ranks, " that there are");
  const int of_group = place_of(options, ranks, 0).ranks;
  KEEL_CHECK(options.subgroup >= 0 && (options.subgroup == 0 || of_group % options.subgroup == 0), "subgroups of ",
             options.subgroup, " ranks do not divide the ", of_group, " that share the shards");
  KEEL_CHECK(!options.secondary || options.subgroup > 0, "secondary shards are those of subgroups, and there are none");
}

RankGroups::RankGroups(Communicator& all, const ShardingOptions& options, bool has_subgroups)
    : place_(place_of(options, all.size(), all.rank())),
      all_(all),
      axes_{place_.groups == 1 ? all : own(all.split(all.rank() / place_.ranks, place_.rank))} {
  if (place_.groups > 1) axes_.replicas = &own(all.split(place_.rank, all.rank() / place_.ranks));
  if (!has_subgroups || !place_.has_subgroups()) return;
  const int subgroup = place_.rank / place_.subgroup, place = place_.rank % place_.subgroup;
  axes_.inside = &own(axes_.shards.split(subgroup, place));
  axes_.across = &own(axes_.shards.split(place, subgroup));
}

Communicator& RankGroups::own(std::unique_ptr<Communicator> communicator) {
  return *owned_.emplace_back(std::move(communicator));
}

Traffic RankGroups::traffic() const {
  Traffic sum = all_.traffic();
  for (const auto& communicator : owned_) {
    const Traffic more = communicator->traffic();
    sum.inside_node += more.inside_node;
    sum.between_nodes += more.between_nodes;
    sum.control += more.control;
    sum.collectives += more.collectives;
  }
  return sum;
}

void RankGroups::set_activity(const std::string& activity) {
  all_.set_activity(activity);
  for (const auto& communicator : owned_) communicator->set_activity(activity);
}

}  // namespace keel
