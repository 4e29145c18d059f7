// Steps that find no memory.

#include <algorithm>
#include <utility>

#include "keel/trainer/training_step.h"

namespace keel {

void TrainingSteps::run_micro_batches(Pending& pending) {
  for (int tries = 1;; ++tries) {
    try {
      begin_micro_batches();
      for (std::size_t i = 0; i < static_cast<std::size_t>(micro_batches_); ++i)
        run_micro_batch(i, next_batch(i), pending);
      return;
    } catch (const OutOfMemory& error) {
      tell([&](StepWatcher& watcher) { watcher.out_of_memory(error); });
      if (!try_again(pending.step, tries, error)) throw;
    }
    pending = {.step = pending.step, .random = pending.random};
  }
}

bool TrainingSteps::try_again(std::int64_t step, int tries, const OutOfMemory& error) {
  // The others are inside a collective, and a graph keeps the memory that it was recorded with.
  if (!parts_.safe || parts_.ranks.size() > 1 || graph_) return false;
  std::string how = "it is tried once more";
  if (tries > 1) {
    const std::int64_t rows = std::min(parts_.micro, parts_.loader->rows(step_));
    if (rows == 1 || !may_divide()) return false;
    const std::int64_t before = std::exchange(parts_.micro, (rows + 1) / 2);
    most_micro_batches_ *= (before + parts_.micro - 1) / parts_.micro;  // this step may have fewer rows than others
    how = concat("it and all later ones are computed in micro-batches of ", parts_.micro,
                 parts_.micro == 1 ? " row" : " rows", ", whose gradients round otherwise; batch.micro=", parts_.micro,
                 " is the same from the start");
  }
  context_.log(LogLevel::warning, concat("step ", step, ": ", error.what(), "; ", how, " (safe_steps)"));
  parts_.engine.zero_grad();
  if (totals_) std::exchange(totals_, std::nullopt)->wait();
  taken_.clear();
  context_.allocator().trim();
  load_from(step_);
  return true;
}

// An engine that was made for one micro-batch a step keeps gradients in the dtype of the weights, in which sums of
// several would lose digits.
bool TrainingSteps::may_divide() const {
  const ShardedOptions& options = parts_.engine.options();
  if (options.sharding.virtual_ranks > 0) return false;  // bits would depend on the memory
  return options.micro_batches > 1 || options.policy.gradient == options.policy.parameter;
}

}  // namespace keel
