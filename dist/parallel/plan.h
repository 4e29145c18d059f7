#pragma once
// What a sharded training step needs, by formulas alone: the memory of a rank and the bytes that it sends.
//
// Nothing is allocated and nobody is asked, so a plan for a thousand ranks takes one process moments. P: elements of a
// unit, rounded up to whole shards; N: ranks; s = P / N; M: backward passes of a step. Per unit, in elements:
//
//             parameters     gradients   optimizer    gathered in a step   reduced in a step
//   stage 0   P              P           P            -                    2 (P - s)
//   stage 1   P              P           s            P - s                P - s
//   stage 2   P              s           s            P - s                M (P - s); P - s where it is deferred
//   stage 3   s              s           s            2 M (P - s)          as stage 2
//
// Stage 3 gathers M (P - s) where whole parameters stay between forward and backward (the root, which the forward pass
// never leaves, always), and is stage 2 for units that persist. Frozen units have no gradient and no optimizer state,
// and are gathered in stage 3 alone. Where shards are spread over groups of G ranks, read G for N; each reduction then
// sends about 2 s (1 - G / N) more, across the groups. (Rajbhandari et al. 2020, ZeRO, section 5; the bytes are those
// of a ring.)

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/dist/parallel/sharded.h"

namespace keel {

// Bytes of one rank.
struct MemoryPlan {
  // Kept from step to step.
  std::int64_t parameter = 0, gradient = 0, optimizer = 0;
  std::int64_t undelivered = 0;  // of `gradient`: what compression keeps for later (keel/dist/parallel/compression.h)
  // The most that is there at one time of: parameters that are whole for a while, gradients likewise, and both with
  // what a reduction puts its result in. The last is the peak of Purpose::bucket.
  std::int64_t gathered = 0, whole_gradients = 0, buckets = 0;
  // Of an offloaded optimizer, in the processor's memory: masters, state, and the weights that it updates.
  std::int64_t host = 0;

  std::int64_t kept() const { return parameter + gradient + optimizer; }
};

// Bytes that one rank sends in a step after the first, as long as all ranks share a node; in each evaluation, where the
// optimizer needs a closure.
struct TrafficPlan {
  std::int64_t gathers = 0;     // of parameters
  std::int64_t reductions = 0;  // of gradients
  // Norm, flag, tokens, and what the optimizer measures, but for the dot products of one that needs a closure; not in
  // sent().
  std::int64_t control = 0;
  std::int64_t offload = 0;  // to the processor and back; not in sent()

  std::int64_t sent() const { return gathers + reductions; }
};

// What a rank asks for in a step, so many times, of `count` elements of `width` bytes in all.
struct PlannedCollective {
  CollectiveKind kind;
  std::int64_t count = 0, width = 1, times = 1;
  bool of_parameters = false;  // otherwise of gradients
  bool across_groups = false;  // otherwise among the ranks of a group
};

struct RankPlan {
  MemoryPlan memory;
  TrafficPlan traffic;
  std::vector<PlannedCollective> collectives;  // of parameters and gradients
};

// What the ranks tell each other at the end of a step: one all-gather of so many bytes.
std::int64_t control_bytes(int ranks);

// The path of a unit's module; "the rest" for what is in no unit of its own.
std::string name_of_unit(const FlatBuffer& unit);

// The ranks that a unit's shards are spread over: what lay_out() wants to know.
int shard_ranks(const ShardingOptions& options, int ranks);

// `layout`: lay_out(model, shard_ranks(...), optimizer.block()). Assumes what a transformer does: the units' forward
// passes follow the order of the layout inside the root's, backward takes them in reverse, and reads the parameters of
// each. A model whose first unit needs no gradient of its input may gather that unit once less where nothing is
// prefetched; where activations are recomputed, no last unit is kept. An optimizer is taken as offloaded if the options
// say so, whatever the device. `algorithm`: that of the communicator (keel/dist/comm/algorithms.h); the bytes of others
// than "direct" are read off their schedules. An Error where a gradient is kept as rows: memory and bytes follow from
// the data then.
RankPlan plan_rank(std::span<const FlatBuffer> layout, const Optimizer& optimizer, const ShardedOptions& options,
                   int ranks, int rank, std::string_view algorithm = "direct");

}  // namespace keel
