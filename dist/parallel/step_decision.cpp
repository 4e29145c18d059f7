#include "keel/dist/parallel/step_decision.h"

#include "keel/kernels/elementwise.h"
#include "keel/runtime/stopwatch.h"

namespace keel {

StepDecision::StepDecision(Communicator& ranks, const EngineSite& site)
    : ranks_(ranks),
      times_(site.times),
      clip_(site.options.clip_by == ClipBy::norm ? site.options.clip : 0),
      scaling_(site.options.scaling),
      state_(
          kernels::make_step_state(site.context, {.loss_scale = static_cast<float>(site.options.loss_scale),
                                                  .hysteresis_left = static_cast<std::int32_t>(scaling_.hysteresis)})) {
  const int virtual_ranks = site.place.virtual_ranks;
  partials_ = empty(site.context, {ranks.size() * virtual_ranks * static_cast<std::int64_t>(sizeof(StepPartial))},
                    DType::u8, Purpose::workspace);
  if (virtual_ranks == 1) return;
  blank_ = kernels::make_step_state(site.context);
  for (int i = 0; i < virtual_ranks; ++i) virtual_states_.push_back(kernels::make_step_state(site.context));
}

void StepDecision::decide(std::span<const std::unique_ptr<ShardUnit>> units, std::span<const double> weights,
                          bool counts, StepArgs args) {
  const std::span<const Tensor> states = virtual_states_.empty() ? std::span(&state_, 1) : virtual_states_;
  std::int64_t before = 0;
  for (const auto& unit : units) {
    if (!unit->trainable()) continue;
    if (ranks_.size() == 1 && states.size() == 1) unit->gradient().begin_reduce(1);
    else unit->gradient().store_changes();
    for (std::size_t i = 0; counts && i < states.size(); ++i) unit->add_squares(states[i], before, static_cast<int>(i));
    before += unit->layout().numel;
  }
  for (std::size_t i = 0; i < states.size(); ++i) kernels::add_tokens(states[i], weights[i]);
  args.state = state_;
  args.clip = clip_;
  args.scaling = scaling_;
  gather(args);
  kernels::decide_step(args);
}

// What all virtual ranks know, if there are several.
void StepDecision::gather(StepArgs& args) {
  if (virtual_states_.empty() && ranks_.size() == 1) return;
  Tensor mine = kernels::partial_of(state_);
  if (!virtual_states_.empty()) {
    const Span place = part({0, partials_.numel()}, ranks_.size(), ranks_.rank());
    mine = partials_.slice(0, place.begin, place.end);
    for (std::size_t i = 0; i < virtual_states_.size(); ++i) {
      const Span row = part({0, mine.numel()}, static_cast<int>(virtual_states_.size()), static_cast<int>(i));
      kernels::copy_into(mine.slice(0, row.begin, row.end), kernels::partial_of(virtual_states_[i]));
      kernels::copy_into(virtual_states_[i], blank_);
    }
  }
  if (ranks_.size() > 1) {
    const Stopwatch watch(times_.waited_ms);
    ranks_.all_gather(mine, partials_).wait();
  }
  args.partials = partials_;
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
