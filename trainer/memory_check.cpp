#include "keel/trainer/memory_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "keel/optim/catalog.h"
#include "keel/trainer/run_plan.h"

namespace keel {
namespace {

std::string size(std::int64_t bytes) { return binary_size(static_cast<double>(bytes)); }

}  // namespace

void check_memory(const Config& config, const Communicator& ranks, std::int64_t vocabulary, bool on_processor,
                  const MemoryLimit& limit) {
  if (!config.check_memory || limit.bytes == 0 || find_optimizer(config.optimizer.type).takes_rows) return;
  const MemoryPlan plan = plan_run(config, ranks.size(), vocabulary, on_processor).memory;
  const std::vector<int>& nodes = ranks.nodes();
  const auto here = std::count(nodes.begin(), nodes.end(), nodes[static_cast<std::size_t>(ranks.rank())]);
  const std::int64_t each = on_processor ? plan.kept() + plan.buckets : plan.host;
  if (each <= limit.bytes / here) return;
  const std::string parts =
      on_processor ? concat(size(plan.parameter), " of weights, ", size(plan.gradient), " of gradients, ",
                            size(plan.optimizer), " of optimizer state, ", size(plan.buckets), " whole for a while")
                   : size(plan.host) + " of what GPUs leave to the processor";
  throw Error(concat("training needs ", here == 1 ? "" : concat(here, " times "), size(each), " (", parts,
                     "; activations come on top), but ",
                     limit.is_of_group ? "this group of processes (cgroup)" : "this machine", " has ",
                     size(limit.bytes),
                     "; a smaller model, more machines or a strategy that shards more need less, and "
                     "check_memory=false goes on regardless"));
}

}  // namespace keel
