#include "keel/dist/parallel/step_decision.h"

#include <utility>

#include "keel/runtime/stopwatch.h"

namespace keel {

StepDecision::StepDecision(const Context& context, Communicator& ranks, const ShardedOptions& options)
    : ranks_(ranks),
      clip_(options.clip_by == ClipBy::norm ? options.clip : 0),
      scaling_(options.scaling),
      state_(kernels::make_step_state(context, {.loss_scale = static_cast<float>(options.loss_scale),
                                                .hysteresis_left = static_cast<std::int32_t>(scaling_.hysteresis)})),
      partials_(empty(context, {ranks.size() * static_cast<std::int64_t>(sizeof(StepPartial))}, DType::u8,
                      Purpose::workspace)) {}

void StepDecision::decide(std::span<const std::unique_ptr<ShardUnit>> units, double weight, bool counts,
                          StepArgs args) {
  std::int64_t before = 0;
  for (const auto& unit : units) {
    if (!unit->trainable()) continue;
    if (ranks_.size() == 1) unit->gradient().begin_reduce(1);
    if (counts) unit->add_squares(state_, before);
    before += unit->layout().numel;
  }
  kernels::add_tokens(state_, weight);
  args.state = state_;
  args.clip = clip_;
  args.scaling = scaling_;
  if (ranks_.size() > 1) {
    const Stopwatch watch(waited_ms_);
    ranks_.all_gather(kernels::partial_of(state_), partials_).wait();
    args.partials = partials_;
  }
  kernels::decide_step(args);
}

StepState StepDecision::read() const {
  const StepState state = kernels::read_step_state(state_);
  ranks_.poll();
  return state;
}

void StepDecision::adopt(const StepState& steps) {
  StepState state = read();
  state.steps = steps.steps;
  state.loss_scale = steps.loss_scale;
  state.hysteresis_left = steps.hysteresis_left;
  state.good_in_a_row = steps.good_in_a_row;
  state.skips_in_a_row = steps.skips_in_a_row;
  write(state);
}

}  // namespace keel
