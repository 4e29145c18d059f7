// The numbers of the engine that a checkpoint keeps.

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "keel/dist/parallel/sharded.h"
#include "keel/kernels/elementwise.h"

namespace keel {
bool Sharded::holds_parts() const { return groups_->is_first() && holds_group_parts(); }

bool Sharded::holds_group_parts() const {
  return kShardingStages[options_.sharding.stage].optimizer || groups_->place().rank == 0;
}

void Sharded::check_updated() const {
  if (is_half_updated_)
    throw Error("an update from files ended in the middle: weights and optimizer state are those of no step",
                ErrorKind::io);
}

TensorParts Sharded::weights() const {
  check_updated();
  TensorParts parts;
  for (const auto& unit : units_) unit->add_parts(parts, "", unit->parameters().own_weights());
  const TensorParts buffers = buffer_updates_->parts();
  parts.insert(parts.end(), buffers.begin(), buffers.end());
  return parts;
}

TensorParts Sharded::optimizer_state() const {
  check_updated();
  return memory_->parts();
}

TensorParts Sharded::compression_state() const {
  TensorParts parts;
  for (const auto& unit : units_) {
    const Reducer* reducer = unit->reducer();
    if (reducer == nullptr || reducer->feedback() == nullptr) continue;
    unit->add_parts(parts, "residual.", reducer->feedback()->residual(), unit->split().reduction.residual);
    if (!reducer->factors().defined()) continue;
    std::int64_t at = 0;
    for (const LowRank& part : low_rank_parts(unit->layout(), options_.compression.rank)) {
      const std::int64_t count = part.rank * part.columns;
      parts.push_back({concat("factor.", unit->layout().segments[part.segment].name),
                       {part.rank, part.columns},
                       0,
                       reducer->factors().slice(0, at, at + count)});
      at += count;
    }
  }
  return parts;
}

Sharded::ResidualPlace Sharded::residual_place() const {
  const RankPlace& place = groups_->place();
  if (place.summed_groups() == 1) return {rank(), size()};
  return {rank() / place.ranks, place.groups};
}

void Sharded::load_compression_state(std::span<const TensorParts> states) {
  wait_until_released();
  std::map<std::string, TensorPart> mine;
  for (const TensorPart& part : compression_state()) {
    if (part.numel() > 0) kernels::fill(part.values, 0);
    mine.emplace(part.name, part);
  }
  for (const TensorParts& state : states)
    for (const TensorPart& part : state) {
      const auto place = mine.find(part.name);
      const bool is_factor = part.name.starts_with("factor.");
      if (is_factor && (place == mine.end() || place->second.shape != part.shape)) continue;
      KEEL_CHECK(mine.empty() || place != mine.end(), "what was not delivered of ", part.name,
                 " belongs to no parameter of this model");
      if (mine.empty()) continue;
      KEEL_CHECK(place->second.shape == part.shape, part.name, " has shape ", part.shape, " instead of ",
                 place->second.shape);
      const TensorPart& here = place->second;
      const std::int64_t begin = std::max(here.begin, part.begin), end = std::min(here.end(), part.end());
      if (begin >= end) continue;
      const auto target = here.values.flatten().slice(0, begin - here.begin, end - here.begin);
      const Tensor values = kernels::to(part.values.flatten().slice(0, begin - part.begin, end - part.begin), context_);
      if (is_factor) kernels::copy_into(target, values);
      else kernels::accumulate(target, values);
    }
}

void Sharded::settle_strategy() const {
  if (strategy_) strategy_->settle();
}

TensorParts Sharded::strategy_state(bool of_group) const {
  TensorParts all;
  if (!strategy_) return all;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const ShardUnit& unit = *units_[i];
    if (!unit.trainable()) continue;
    for (const StrategyState& state : strategy_->state(strategy_units_[i]))
      if (state.of_group || !of_group) unit.add_parts(all, concat(state.name, '.'), state.values);
  }
  if (of_group) return all;
  *strategy_step_count_.data<double>() = static_cast<double>(strategy_->steps());
  all.push_back({"steps", {1}, 0, strategy_step_count_});
  return all;
}

void Sharded::load_strategy_state(const TensorParts& state) {
  wait_until_released();
  settle_strategy();
  copy_parts(state, strategy_state(), "this is not the state of this strategy of communication");
  adopt_strategy_state();
}

void Sharded::adopt_strategy_state() {
  if (strategy_) strategy_->resumed(static_cast<std::int64_t>(*strategy_step_count_.data<double>()));
}

TensorParts Sharded::group_steps() const {
  const StepState own = state();
  auto* const numbers = group_steps_.data<double>();
  numbers[0] = static_cast<double>(own.steps);
  numbers[1] = own.loss_scale;
  numbers[2] = own.hysteresis_left;
  numbers[3] = static_cast<double>(own.good_in_a_row);
  numbers[4] = static_cast<double>(own.skips_in_a_row);
  return {{"steps", group_steps_.shape(), 0, group_steps_}};
}

void Sharded::adopt_group_steps() {
  const auto* const numbers = group_steps_.data<double>();
  adopt_steps({.steps = std::llround(numbers[0]),
               .loss_scale = static_cast<float>(numbers[1]),
               .hysteresis_left = static_cast<std::int32_t>(numbers[2]),
               .good_in_a_row = std::llround(numbers[3]),
               .skips_in_a_row = std::llround(numbers[4])});
}

void Sharded::restart_groups() {
  if (strategy_) strategy_->restart();
}

void Sharded::load_weights(const TensorParts& weights) {
  wait_until_released();
  copy_parts(weights, this->weights(), "these weights belong to another model");
  adopt_weights();
}

void Sharded::adopt_weights() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    units_[unit]->parameters().adopt_weights();
    if (optimizer_->requirements().averages && !uses_averages_) {
      memory_->fill_values(unit);
      units_[unit]->parameters().send_values();
    }
    share_updates(unit);
    if (pager_) put_away(unit);
  }
  if (pager_) {
    pager_->settle();
    pager_->throw_noted();
  }
  buffer_updates_->share();
}

// What was written to a unit goes to its file.
void Sharded::put_away(std::size_t unit) {
  for (Page* page : units_[unit]->parameters().pages())
    if (!page->is_away()) pager_->leave(*page);
}

void Sharded::use_averages(bool use) {
  if (!optimizer_->requirements().averages || use == uses_averages_) return;
  wait_until_released();
  uses_averages_ = use;
  adopt_weights();
}

void Sharded::load_optimizer_state(const TensorParts& state, const StepState& steps) {
  wait_until_released();
  copy_parts(state, optimizer_state(),
             concat("this optimizer state is not that of ", optimizer_->name(), " for this model"));
  if (optimizer_->requirements().averages) adopt_weights();
  adopt_steps(steps);
}

void Sharded::adopt_steps(const StepState& steps) { decision_->adopt(steps); }

}  // namespace keel
