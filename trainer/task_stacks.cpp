#include "keel/trainer/task_stacks.h"

#include "keel/dist/checkpoint/snapshot.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/stack_config.h"
#include "keel/trainer/weights_source.h"

namespace keel {

TaskStacks::TaskStacks(const StackSite& site, const StackModels& models, Communicator& ranks)
    : site_(site), models_(models) {
  int subject = 1;  // of the next stack's first unit
  for (const StackModel& model : models_.trained()) {
    configs_.push_back(stack_config(site_.config, model.name));
    const StackSite own{.config = configs_.back(),
                        .context = site_.context,
                        .ranks = site_.ranks,
                        .micro_batches = site_.micro_batches * model.passes,
                        .survivors = site_.survivors};
    trained_.push_back(std::make_unique<Stack>(own, *model.module, model.name, subject));
    subject += static_cast<int>(trained_.back()->engine().units().size());
  }
  for (const StackModel& model : models_.frozen()) {
    frozen_.push_back(std::make_unique<FrozenStack>(site_, *model.module, subject));
    subject += static_cast<int>(frozen_.back()->engine().units().size());
    fingerprints_.emplace(model.name, load_frozen(model, *frozen_.back(), ranks));
  }
}

void TaskStacks::begin_with_weights(Communicator& ranks, const std::function<void(const std::string& note)>& tell) {
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    const StackModel& model = models_.trained()[i];
    const std::string adapters = model.adapters ? model.adapters->weights : "";
    load_named_weights(model, trained_[i]->engine(), ranks, false, tell);
    if (!tell || ranks.rank() != 0) continue;
    const std::string called = model.name.empty() ? "the model" : concat("model '", model.name, "'");
    if (!model.weights.empty()) tell(concat(called, " begins with the weights in '", model.weights, "'"));
    if (!adapters.empty()) tell(concat(called, " begins with the adapters in '", adapters, "'"));
  }
}

LossFunction TaskStacks::loss(TaskBase& task) {
  return [this, loss = loss_of(task)](const Batch& batch, Forward& pass) {
    Loss of_batch = loss(batch, pass);
    release_frozen();
    return of_batch;
  };
}

std::vector<SavedBeside> TaskStacks::others() const {
  std::vector<SavedBeside> all;
  for (std::size_t i = 1; i < trained_.size(); ++i)
    for (SavedBeside& each : saved_with(trained_[i]->engine())) all.push_back(std::move(each));
  return all;
}

void TaskStacks::release_frozen() {
  for (const auto& stack : frozen_) stack->engine().release_weights();
}

double TaskStacks::waited_ms() const {
  double sum = 0;
  for_each_engine([&](const Sharded& engine) { sum += engine.waited_ms(); });
  return sum;
}

// Each engine counts what goes through the communicator that all have in common, beside that of its own groups.
std::int64_t TaskStacks::data_sent() const {
  const std::int64_t common = site_.ranks.traffic().sent();
  std::int64_t sum = common;
  for (const auto& stack : trained_) sum += std::as_const(*stack).engine().data_traffic().sent() - common;
  for (const auto& stack : frozen_)
    sum += std::as_const(*stack).engine().data_traffic().sent() - (stack->group() != nullptr ? 0 : common);
  return sum;
}

RankPlan TaskStacks::plan(std::int64_t micro_batches) const {
  const bool on_processor = site_.context.device().type == DeviceType::cpu;
  return plan_stacks(site_.config, models_, site_.ranks.size(), site_.ranks.rank(), on_processor, micro_batches);
}

}  // namespace keel
