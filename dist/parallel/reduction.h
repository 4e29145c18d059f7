#pragma once
// How a unit's gradient is summed over the ranks: a list of stages, each one collective. A Reducer (reducer.h) runs the
// list; plans (plan.h) add up its bytes and memory.

#include <cstdint>
#include <vector>

#include "keel/dist/comm/schedule.h"
#include "keel/dist/parallel/compression.h"
#include "keel/dist/parallel/planned_collective.h"
#include "keel/kernels/codec.h"
#include "keel/nn/flat_buffer.h"

namespace keel {

struct UnitSplit;  // keel/dist/parallel/unit_split.h

// Bytes of an element.
inline std::int64_t width_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

struct ReductionStage {
  enum class Kind : unsigned char {
    scatter_sums,      // from the whole gradient to the sums of this rank's shard, in the wire dtype
    sum_whole,         // to the sums of all of it
    sum_replicas,      // the sums of all groups, of what the rank has
    scatter_payloads,  // shard i, as bytes that a codec makes, goes to rank i, which adds up those of all ranks
    scatter_inside,    // in two steps, over the ranks of a subgroup and then over the subgroups
    scatter_across,
    gather_payloads,  // all shards as such bytes go to all ranks, which add them up
    gather_replicas,  // what the rank has of its group's sum, as such bytes, goes to those of the other groups
    gather_sums,      // the sums of all shards, in the wire dtype
    left_factors,     // PowerSGD's two collectives
    right_factors,
  };
  Kind kind;
  PlannedCollective collective;
  // Bytes of buffers while it is under way. `later`: in a reduction whose sum is added to one of an earlier pass.
  std::int64_t held = 0, held_later = 0;

  // Whether it sends numbers in the wire dtype, and no bytes or factors.
  bool sends_sums() const {
    return kind == Kind::scatter_sums || kind == Kind::sum_whole || kind == Kind::sum_replicas ||
           kind == Kind::gather_sums;
  }
};

struct ReductionPlan {
  std::vector<ReductionStage> stages = {};  // none: the rank is alone
  // Bytes of what compression keeps from step to step. From a step's first stage to its end there is a second copy.
  std::int64_t state = 0;
  // Where there is a residual: the elements of the unit that it is of, and the stage whose numbers it is added to.
  Span residual = {};
  std::size_t feedback_stage = 0;
};

// A part of a unit's gradient that PowerSGD sends as the product of (rows, rank) and (rank, columns).
struct LowRank {
  std::size_t segment;
  std::int64_t rows, columns, rank;
};
// The matrices of a unit for which those two factors have fewer numbers than the matrix; the rest is sent as it is.
std::vector<LowRank> low_rank_parts(const FlatBuffer& layout, std::int64_t rank);

// How the payloads of int8, int4, qgz and topk are made.
Codec codec_of(const Compression& compression);

// Of a unit whose gradient is dense. Of one that is frozen, or whose gradient is kept as rows, nobody runs it.
ReductionPlan plan_reduction(const FlatBuffer& layout, const UnitSplit& split, const Compression& compression,
                             const RankPlace& place);

}  // namespace keel
