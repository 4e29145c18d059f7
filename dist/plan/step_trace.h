#pragma once
// What a rank computes and asks for in a step, as a graph. It is estimated from the layout alone, for simulators of
// networks and machines.

#include <span>
#include <string>
#include <vector>

#include "keel/dist/plan/rank_plan.h"

namespace keel {

struct TraceNode {
  enum class Kind : unsigned char { compute, collective };
  Kind kind = Kind::compute;
  std::string name;  // "backward h.0"
  std::int64_t micro_batch = 1;
  // The nodes before it: those whose results it needs, and those that it only follows, as collectives follow each
  // other.
  std::vector<std::size_t> needs = {}, follows = {};
  PlannedCollective collective = {};  // of kind collective, once
  std::int64_t sent = 0;              // bytes that the rank sends for it
  // For kind compute. `operations`: two for each token and number of a matrix, and four backward; attention between
  // tokens is not counted. `bytes`: of the parameters that it reads.
  std::int64_t operations = 0, bytes = 0;
};

// A step after the first, in the order in which the rank asks: gathers ahead of the passes that need them, reductions
// after the passes that complete gradients, the update, and the parameters that are sent after it. With an optimizer
// that needs a closure it is one evaluation. It leaves out messages of a few bytes (TrafficPlan::control), copies of an
// offloaded optimizer, and activations. `layout`, `route` and errors are those of plan_rank(); `tokens` is for a
// micro-batch.
std::vector<TraceNode> trace_step(std::span<const FlatBuffer> layout, const Optimizer& optimizer,
                                  const ShardedOptions& options, int ranks, int rank, std::int64_t tokens,
                                  const CollectiveRoute& route = {});

}  // namespace keel
