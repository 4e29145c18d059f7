#include "keel/trainer/stack.h"

#include <algorithm>

#include "keel/optim/optimizer.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/frozen_stack.h"
#include "keel/trainer/run_plan.h"
#include "keel/trainer/stack_config.h"

namespace keel {

namespace {

ShardedOptions trained_options(const StackSite& site, Module& model, const std::string& name, int first_subject) {
  ShardedOptions options = engine_options(site.config, site.micro_batches, model);
  options.name = name;
  options.survivors = site.survivors;
  options.first_subject = first_subject;
  return options;
}

ShardedOptions planned_options(const Config& config, Module& model, int ranks, bool frozen, int passes) {
  const std::int64_t micro_batches = passes * planned_micro_batches(config, ranks);
  if (!frozen) return engine_options(config, micro_batches, model);
  ShardedOptions options = answering_options(config, model, ranks);
  options.micro_batches = micro_batches * config.sharding.of_each(ranks);  // of all virtual ranks of a rank
  return options;
}

// As the engine will have it.
std::vector<FlatBuffer> planned_layout(Module& model, int shards, std::int64_t block, bool frozen) {
  std::vector<FlatBuffer> layout = lay_out(model, shards, block);
  if (!frozen) return layout;
  for (FlatBuffer& unit : layout) unit.trainable = unit.sparse = false;
  return layout;
}

}  // namespace

Stack::Stack(const StackSite& site, Module& model, const std::string& name, int first_subject)
    : site_(site),
      model_(model),
      warning_(check_groups(site.config, model)),
      engine_(model, site.context, site.ranks, make_optimizer(site.config),
              trained_options(site, model, name, first_subject)) {}

const StepCurves& Stack::curves() {
  if (!curves_.rates.defined()) curves_ = make_curves(site_.config, site_.context);
  return curves_;
}

std::string Stack::note() const { return accumulation_note(engine_); }

PlannedStack::PlannedStack(const Config& config, Module& model, int ranks, bool on_processor, bool frozen, int passes)
    : config_(config),
      ranks_(ranks),
      options_(planned_options(config, model, ranks, frozen, passes)),
      optimizer_(frozen ? make_sgd() : make_optimizer(config)),
      layout_(planned_layout(model, shard_ranks(options_, ranks), optimizer_->requirements().block, frozen)),
      buffers_(count_buffers(model)),
      is_trained_(!frozen),
      passes_(frozen ? passes * config.sharding.of_each(ranks) : passes) {
  if (frozen) buffers_.moving_numbers = buffers_.moving_buffers = 0;
  if (on_processor || config.device == "cpu") options_.sharding = options_.sharding.on_processor();
  else is_on_device_ = true;
}

RankPlan PlannedStack::plan(int rank, std::int64_t micro_batches) const {
  RankPlan plan = plan_rank(layout_, *optimizer_, options_, ranks_, rank,
                            {.buffers = buffers_,
                             .route = collective_route(config_.sharding, is_on_device_),
                             .on_device = is_on_device_,
                             .micro_batches = passes_ * micro_batches});
  if (is_trained_) return plan;
  plan.memory.checkpoint = plan.owned = 0;  // it is not saved, and has no averages
  plan.saves = false;
  plan.traffic.control = 0;  // it takes no steps
  return plan;
}

std::vector<TraceNode> PlannedStack::trace(int rank, std::int64_t tokens) const {
  return trace_step(layout_, *optimizer_, options_, ranks_, rank, tokens,
                    collective_route(config_.sharding, is_on_device_));
}

RankPlan plan_stacks(const Config& config, const StackModels& models, int ranks, int rank, bool on_processor,
                     std::int64_t micro_batches) {
  RankPlan sum;
  for (const StackModel& model : models.all()) {
    const Config own = stack_config(config, model.name, model.frozen);
    sum += PlannedStack(own, *model.module, ranks, on_processor, model.frozen, model.passes).plan(rank, micro_batches);
  }
  return sum;
}

bool transform_matrices(const Config& config, const StackModels& models) {
  return std::ranges::any_of(models.trained(), [&](const StackModel& model) {
    return make_optimizer(stack_config(config, model.name))->requirements().matrices;
  });
}

}  // namespace keel
