#pragma once
// What a rank computes and asks for in a step, as a graph: an estimate by the layout alone, for simulators of networks
// and machines.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/dist/parallel/plan.h"

namespace keel {

struct TraceNode {
  enum class Kind : unsigned char { compute, collective };
  Kind kind = Kind::compute;
  std::string name;  // "backward h.0"
  std::int64_t micro_batch = 1;
  // Nodes before: those whose results it needs, and those that it only follows, as collectives follow each other.
  std::vector<std::size_t> needs = {}, follows = {};
  PlannedCollective collective = {};  // of kind collective, once
  // Of kind compute. Two operations for each token and number of a matrix, and twice that backward; those of attention
  // between tokens are not counted. Bytes of the parameters that it reads.
  std::int64_t operations = 0, bytes = 0;
};

// A step after the first, in the order in which the rank asks: gathers ahead of the passes that need them, reductions
// after the passes that end them, the update, and the parameters that are sent around after it. Of one evaluation where
// the optimizer needs a closure. The ranks' words of a few bytes (TrafficPlan::control), copies of an offloaded
// optimizer and activations are not in it. `layout` and errors: as in plan_rank(). `tokens`: of a micro-batch.
std::vector<TraceNode> trace_step(std::span<const FlatBuffer> layout, const Optimizer& optimizer,
                                  const ShardedOptions& options, int ranks, int rank, std::int64_t tokens);

}  // namespace keel
