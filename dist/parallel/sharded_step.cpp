// The second half of the engine: steps, and the numbers that a checkpoint keeps.

#include <algorithm>
#include <chrono>
#include <cstring>

#include "keel/dist/parallel/sharded.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/update.h"

namespace keel {
namespace {

// The owned part of a segment, of numbers that are the owned part of a unit.
TensorPart cut_part(const ShardUnit& unit, const Segment& segment, std::string name, const Tensor& owned) {
  const Span span = unit.owned();
  const std::int64_t begin = std::clamp(segment.offset, span.begin, span.end);
  const std::int64_t end = std::clamp(segment.offset + segment.numel, span.begin, span.end);
  if (begin >= end) return {std::move(name), segment.shape};
  return {std::move(name), segment.shape, begin - segment.offset, owned.slice(0, begin - span.begin, end - span.begin)};
}

constexpr std::string_view kOtherModel = "these weights belong to another model";
std::string complaint_of(const Optimizer& optimizer) {
  return concat("this optimizer state is not that of ", optimizer.name(), " for this model");
}

}  // namespace

PendingStep Sharded::step(double lr) {
  StepArgs args;
  args.lr = lr;
  return step(args);
}

PendingStep Sharded::step(const Tensor& rates) {
  StepArgs args;
  args.rates = rates;
  return step(args);
}

PendingStep Sharded::step(StepArgs args) {
  KEEL_CHECK(last_seen_, "step() needs a backward() whose options say that it is the last one of the step");
  KEEL_CHECK(tokens_ > 0 || size() > 1, "step() needs a backward() with at least one token before it");
  // Of the ranks with the same shard, those of the first group count it.
  const bool counts = replicas_ == nullptr || replicas_->rank() == 0;
  std::int64_t before = 0;
  for (const auto& unit : units_) {
    if (!unit->trainable()) continue;
    if (size() == 1) unit->begin_reduce();
    if (counts) kernels::add_squares(unit->shard_gradient(), state_, before + unit->shard().begin);
    before += unit->layout().numel;
  }
  kernels::add_tokens(state_, static_cast<double>(tokens_));
  args.state = state_;
  args.clip = options_.clip;
  args.scaling = options_.scaling;
  if (size() > 1) {
    const auto begin = std::chrono::steady_clock::now();
    control_->all_gather(kernels::partial_of(state_), partials_).wait();
    waited_ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    args.partials = partials_;
  }
  kernels::decide_step(args);
  if (offloads_) {
    update_offloaded();
  } else {
    const StepInput input{.step = state_, .shared = shared_};
    optimizer_->update(ranges_, input);
    optimizer_->advance(input);
  }
  for (const auto& unit : units_)
    if (unit->trainable()) unit->share_updates();
  zero_grad();
  return {*this, state_};
}

// Gradients come to the processor while it updates the units before, and values go back while it updates the next.
void Sharded::update_offloaded() {
  const HostCopy state(state_);
  std::vector<HostCopy> gradients;
  for (const auto& unit : units_) {
    gradients.emplace_back();
    if (!unit->trainable()) continue;
    gradients.back() = HostCopy(unit->own_gradient());
    offload_bytes_ += static_cast<std::int64_t>(unit->own_gradient().bytes());
  }
  const StepInput input{.step = state.get(), .shared = shared_};
  for (std::size_t i = 0; i < units_.size(); ++i) {
    ShardUnit& unit = *units_[i];
    if (!unit.trainable()) continue;
    const Tensor& gradient = gradients[i].get();
    std::vector<ParameterRange> ranges;
    for (std::int64_t r = unit_ranges_[i].begin; r < unit_ranges_[i].end; ++r) {
      ranges.push_back(ranges_[static_cast<std::size_t>(r)]);
      const std::int64_t begin = ranges.back().gradient.offset() - unit.own_gradient().offset();
      ranges.back().gradient = gradient.slice(0, begin, begin + ranges.back().gradient.numel());
    }
    optimizer_->update(ranges, input);
    unit.send_values();
    offload_bytes_ += static_cast<std::int64_t>(unit.own_values().bytes());
  }
  optimizer_->advance(input);
}

StepResult PendingStep::get() const {
  StepState state;
  std::memcpy(&state, state_.get().raw(), sizeof state);
  return {.taken = state.taken != 0,
          .steps_taken = state.steps,
          .lr = state.lr,
          .grad_norm = state.grad_norm,
          .tokens = state.tokens,
          .loss_scale = state.loss_scale,
          .first_bad = engine_->parameter_at(state.first_bad)};
}

void Sharded::zero_grad() {
  for (const auto& unit : units_) unit->zero_grad();
  tokens_ = 0;
  last_seen_ = false;
}

void Sharded::set_activity(const std::string& activity) {
  for (Communicator* each : {&communicator_, control_.get(), group_.get(), replicas_.get()})
    if (each != nullptr) each->set_activity(activity);
}

// The trainable parameter that holds an element, counted as step() hands units to add_squares(); "" past the last.
std::string Sharded::parameter_at(std::int64_t element) const {
  for (const auto& unit : units_) {
    if (!unit->trainable()) continue;
    for (const Segment& segment : unit->layout().segments)
      if (element < segment.offset + segment.numel) return segment.name;
    element -= unit->layout().numel;
  }
  return {};
}

Traffic Sharded::data_traffic() const {
  Traffic sum = communicator_.traffic();
  for (const Communicator* communicator : {group_.get(), replicas_.get()}) {
    if (communicator == nullptr) continue;
    const Traffic more = communicator->traffic();
    sum.inside_node += more.inside_node;
    sum.between_nodes += more.between_nodes;
    sum.control += more.control;
    sum.collectives += more.collectives;
  }
  return sum;
}

double Sharded::waited_ms() const {
  double sum = waited_ms_;
  for (const auto& unit : units_) sum += unit->waited_ms();
  return sum;
}

bool Sharded::holds_parts() const {
  if (replicas_ != nullptr) return replicas_->rank() == 0;
  return kShardingStages[options_.sharding.stage].optimizer || rank() == 0;
}

TensorParts Sharded::weights() const {
  TensorParts parts;
  for (const auto& unit : units_)
    for (const Segment& segment : unit->layout().segments)
      parts.push_back(cut_part(*unit, segment, segment.name, unit->own_weights()));
  return parts;
}

TensorParts Sharded::optimizer_state() const {
  TensorParts parts;
  const std::vector<std::string_view> names = optimizer_->state_names();
  for (std::size_t i = 0; i < units_.size(); ++i)
    for (std::size_t kind = 0; kind < optimizer_state_[i].size(); ++kind)
      for (const Segment& segment : units_[i]->layout().segments)
        parts.push_back(
            cut_part(*units_[i], segment, concat(names[kind], '.', segment.name), optimizer_state_[i][kind]));
  if (shared_.defined()) parts.push_back({concat("shared.", optimizer_->shared_number()->name), {1}, 0, shared_});
  return parts;
}

void Sharded::check_weights(const TensorParts& weights) const { check_parts(weights, this->weights(), kOtherModel); }

void Sharded::check_optimizer_state(const TensorParts& state) const {
  check_parts(state, optimizer_state(), complaint_of(*optimizer_));
}

void Sharded::load_weights(const TensorParts& weights) {
  copy_parts(weights, this->weights(), kOtherModel);
  for (const auto& unit : units_) {
    unit->adopt_weights();
    unit->share_updates();
  }
}

void Sharded::load_optimizer_state(const TensorParts& state, const StepState& steps) {
  copy_parts(state, optimizer_state(), complaint_of(*optimizer_));
  StepState initial = this->state();
  initial.steps = steps.steps;
  initial.loss_scale = steps.loss_scale;
  initial.hysteresis_left = steps.hysteresis_left;
  initial.good_in_a_row = steps.good_in_a_row;
  initial.skips_in_a_row = steps.skips_in_a_row;
  state_.copy_from_host(&initial);
}

}  // namespace keel
