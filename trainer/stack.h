#pragma once
// A stack: a model with its optimizer, engine and curves, put together from a configuration. The one place that does
// so: train, compare, plan and the C interface use it.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "keel/dist/parallel/sharded.h"
#include "keel/dist/plan/rank_plan.h"
#include "keel/dist/plan/step_trace.h"
#include "keel/trainer/stack_models.h"

namespace keel {

struct Config;

// What a stack needs of a run. All of it must outlive the stack.
struct StackSite {
  const Config& config;  // whose precision has been decided
  const Context& context;
  Communicator& ranks;                   // that the engine uses
  std::int64_t micro_batches = 1;        // calls of backward between two updates, at most
  SurvivingGroups* survivors = nullptr;  // see ShardedOptions
};

class Stack {
 public:
  // Gives the model its memory and initial numbers; it must outlive the stack. Collective. Errors: see Sharded; a group
  // of the configuration that fits no parameter is one, too. `name`, `first_subject`: see ShardedOptions.
  Stack(const StackSite& site, Module& model, const std::string& name = {}, int first_subject = 1);

  const std::string& name() const { return engine_.options().name; }
  const Config& config() const { return site_.config; }
  Module& model() const { return model_; }
  Sharded& engine() { return engine_; }
  const Sharded& engine() const { return engine_; }
  // Of the configuration's schedule, on the device; tabulated when they are first asked for.
  const StepCurves& curves();
  // What the configuration says in vain; empty: nothing.
  const std::string& warning() const { return warning_; }
  // What whole gradients cost that stages 2 and 3 keep until a step's last micro-batch; empty: they keep none.
  std::string note() const;

 private:
  StackSite site_;
  Module& model_;
  std::string warning_;
  Sharded engine_;
  StepCurves curves_;
};

// A stack on so many ranks as formulas see it; needs no memory for numbers.
class PlannedStack {
 public:
  // `on_processor`: the device is the processor, so nothing is offloaded.
  // `frozen`: it only answers, as a FrozenStack. `passes`: see StackModel.
  PlannedStack(const Config& config, Module& model, int ranks, bool on_processor, bool frozen = false, int passes = 1);
  // `micro_batches`: of a step that has fewer than others, whose traffic between ranks the plan then has.
  RankPlan plan(int rank, std::int64_t micro_batches = 0) const;
  // What the rank does in a step whose first micro-batch has so many tokens, in order.
  std::vector<TraceNode> trace(int rank, std::int64_t tokens) const;

 private:
  const Config& config_;
  int ranks_;
  ShardedOptions options_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<FlatBuffer> layout_;
  BufferCount buffers_;
  bool is_trained_, is_on_device_ = false;
  std::int64_t passes_;  // of a micro-batch, as the options count them
};

// What a rank needs and sends for all models, by formulas: the sum over their stacks.
RankPlan plan_stacks(const Config& config, const StackModels& models, int ranks, int rank, bool on_processor,
                     std::int64_t micro_batches = 0);

// Whether the optimizer of a model that is trained transforms whole matrices.
bool transform_matrices(const Config& config, const StackModels& models);

}  // namespace keel
