#include "keel/trainer/stack.h"

#include "keel/dist/comm/algorithm_names.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/run_plan.h"

namespace keel {

Stack::Stack(const StackSite& site, Module& model)
    : site_(site),
      model_(model),
      engine_(model, site.context, site.ranks, make_optimizer(site.config),
              engine_options(site.config, site.micro_batches, model)),
      warning_(check_groups(site.config, engine_)) {}

const StepCurves& Stack::curves() {
  if (!curves_.rates.defined()) curves_ = make_curves(site_.config, site_.context);
  return curves_;
}

std::string Stack::note() const { return accumulation_note(engine_); }

RankPlan Stack::plan() const {
  const bool on_processor = site_.context.device().type == DeviceType::cpu;
  return PlannedStack(site_.config, model_, site_.ranks.size(), on_processor).plan(site_.ranks.rank());
}

PlannedStack::PlannedStack(const Config& config, Module& model, int ranks, bool on_processor)
    : config_(config),
      ranks_(ranks),
      options_(engine_options(config, planned_micro_batches(config, ranks), model)),
      optimizer_(make_optimizer(config)),
      layout_(lay_out(model, shard_ranks(options_.sharding, ranks), optimizer_->requirements().block)),
      buffers_(count_buffers(model)) {
  if (on_processor || config.device == "cpu") options_.sharding.offload_optimizer = false;
}

RankPlan PlannedStack::plan(int rank) const {
  return plan_rank(layout_, *optimizer_, options_, ranks_, rank, buffers_,
                   find_algorithm_name(config_.sharding.algorithm).algorithm);
}

std::vector<TraceNode> PlannedStack::trace(int rank, std::int64_t tokens) const {
  return trace_step(layout_, *optimizer_, options_, ranks_, rank, tokens);
}

}  // namespace keel
