#include "keel/trainer/compared_training.h"

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/comm/regroup.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/memory_check.h"
#include "keel/trainer/run_evaluation.h"
#include "keel/trainer/run_plan.h"

namespace keel {

ComparedRanks::ComparedRanks(Communicator& given, const Network& network, const Config& config) : ranks_(&given) {
  if (network.is_slow() && given.size() > 1) ranks_ = (slow_ = given.regroup({.network = network})).get();
  background_ = make_background(config, *ranks_);
  if (background_) ranks_ = background_.get();
}

ComparedTraining::ComparedTraining(const Config& config, std::string_view compared, Communicator& ranks,
                                   const LogSink& log)
    : config_(config), ranks_(ranks) {  // its steps stay those of the run, whose schedule this begins
  config_.checkpoint.async = false;     // it makes none
  std::int64_t micro_batches = 0;
  together(ranks, [&] {
    KEEL_CHECK(config_.swa.start.is_none() || config_.swa.rate_factor == 1,
               "swa.rate_factor changes learning rates in the middle of a run, and a comparison has no averages of "
               "weights; it goes without, by swa.rate_factor=1");
    micro_batches = planned_micro_batches(config_, ranks.size());
    context_.emplace(make_context(config_, ranks, log));
    task_ = make_task(config_, context_->host());
    data_ = open_training_data(config_, *task_);
  });
  check_memory(config_, *task_, ranks, *context_);
  check_agreement(ranks, concat(to_yaml(config_), compared), "ranks were given different configurations");
  device_ranks_.emplace(config_, *context_, ranks);
  stacks_.emplace(
      StackSite{.config = config_, .context = *context_, .ranks = **device_ranks_, .micro_batches = micro_batches},
      *task_, ranks);
  Stack& stack = stacks_->main();
  steps_.emplace(TrainingSteps::Parts{.model = stack.model(),
                                      .loss = stacks_->loss(*task_),
                                      .engine = stack.engine(),
                                      .ranks = ranks,
                                      .loader = data_.training,
                                      .micro = config_.batch.micro,
                                      .curves = stack.curves(),
                                      .seed = config_.seed,
                                      .unit = std::string(task_->unit())},
                 0);
  skipped_.emplace(stack.engine().options().scaling, 0);
}

RunSteps::Turn ComparedTraining::noted(RunSteps::Turn turn) {
  if (turn.outcome) skipped_->note(turn.outcome->result);
  return turn;
}

EvalReport ComparedTraining::evaluate() {
  const auto use_averages = [&](bool use) {
    for (const auto& stack : stacks_->trained()) stack->engine().use_averages(use);
  };
  use_averages(true);
  EvalReport report = RunEvaluation{config_, *task_, data_, engine(), ranks_}.run(step(), config_.eval.batches);
  stacks_->release_frozen();
  use_averages(false);
  for (const auto& stack : stacks_->trained()) stack->engine().release_weights();  // the next step gathers its own
  return report;
}

std::int64_t ComparedTraining::sent() {
  for (const auto& stack : stacks_->trained())
    for (const auto& unit : stack->engine().units()) unit->parameters().wait_gathered();
  return stacks_->data_sent();
}

std::int64_t ComparedTraining::strategy_sent() {
  std::int64_t sent = 0;
  for (const auto& stack : stacks_->trained()) {
    stack->engine().settle_strategy();
    sent += stack->engine().strategy_traffic().sent();
  }
  return sent;
}

std::int64_t ComparedTraining::kept() const {
  const MemoryReport memory = context_->memory();
  std::int64_t kept = 0;
  for (const Purpose purpose : {Purpose::parameter, Purpose::gradient, Purpose::optimizer})
    kept += static_cast<std::int64_t>(memory[purpose].current);
  return kept;
}

std::uint64_t ComparedTraining::fingerprint() {
  const std::uint64_t mine = engine().holds_parts() ? keel::fingerprint(engine().weights()) : 0;
  std::uint64_t sum = 0;
  for (const std::uint64_t theirs : gather_values(ranks_, mine)) sum += theirs;
  return sum;
}

}  // namespace keel
