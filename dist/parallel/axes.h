#pragma once
// The groups of ranks that a unit's collectives are among.

#include <cstddef>
#include <string_view>

#include "keel/dist/comm/communicator.h"

namespace keel {

enum class Axis : unsigned char {
  shards,    // the ranks that its shards are spread over: all, or those of one group
  replicas,  // those with the same shard in the other groups
  inside,    // of `shards`: the neighbours in one subgroup, as the ranks of a node are
  across,    // of `shards`: those with the same place in the other subgroups
};

inline constexpr std::string_view kAxes[] = {"shards", "replicas", "inside", "across"};
constexpr std::string_view name_of(Axis axis) { return kAxes[static_cast<std::size_t>(axis)]; }

// Communicators by axis, of which the caller keeps those that there are. Without subgroups `inside` and `across` are
// null, and so is `replicas` in a group of all ranks.
struct Axes {
  Communicator& shards;
  Communicator* replicas = nullptr;
  Communicator* inside = nullptr;
  Communicator* across = nullptr;

  Communicator& operator[](Axis axis) const {
    switch (axis) {
      case Axis::replicas: return *replicas;
      case Axis::inside: return *inside;
      case Axis::across: return *across;
      case Axis::shards: break;
    }
    return shards;
  }
};

// Where a rank stands: shards are spread over the `ranks` ranks of a group, each of `groups` groups has them all, and a
// group has subgroups of `subgroup` neighbours, or none where that is 0.
struct RankPlace {
  int ranks = 1, rank = 0, groups = 1;
  int subgroup = 0;
  int virtual_ranks = 1;    // that this rank computes, one after the other
  bool sums_groups = true;  // gradients are summed over the groups in each step

  // The groups whose gradients come together.
  int summed_groups() const { return sums_groups ? groups : 1; }
  // Whether there are several subgroups of several ranks.
  bool has_subgroups() const { return subgroup > 1 && subgroup < ranks; }
};

}  // namespace keel
