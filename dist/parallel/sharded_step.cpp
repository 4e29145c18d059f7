// The second half of the engine: steps, and the numbers that a checkpoint keeps.

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "keel/dist/parallel/sharded.h"
#include "keel/kernels/elementwise.h"
#include "keel/runtime/stopwatch.h"

namespace keel {
namespace {

// The owned part of a segment, of numbers that are the owned part of a unit.
TensorPart cut_part(const ShardUnit& unit, const Segment& segment, std::string name, const Tensor& owned) {
  const Span span = unit.owned();
  const std::int64_t begin = std::clamp(segment.offset, span.begin, span.end);
  const std::int64_t end = std::clamp(segment.offset + segment.numel, span.begin, span.end);
  if (segment.numel == 0) return {std::move(name), segment.shape, 0, owned.slice(0, 0, 0)};
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

PendingStep Sharded::step(const StepCurves& curves) {
  StepArgs args;
  args.curves = curves;
  return step(args);
}

// What all ranks know of the gradient, and what follows for the step.
void Sharded::decide(StepArgs args) {
  KEEL_CHECK(last_seen_, "step() needs a backward() whose options say that it is the last one of the step");
  // Every group has all shards; those of the first group are counted.
  const bool counts = replicas_ == nullptr || replicas_->rank() == 0;
  std::int64_t before = 0;
  for (const auto& unit : units_) {
    if (!unit->trainable()) continue;
    if (size() == 1) unit->begin_reduce();
    if (counts) kernels::add_squares(unit->shard_gradient(), state_, before + unit->shard().begin);
    before += unit->layout().numel;
  }
  kernels::add_tokens(state_, weight_);
  args.state = state_;
  if (options_.clip_by == ClipBy::norm) args.clip = options_.clip;
  args.scaling = options_.scaling;
  if (size() > 1) {
    const Stopwatch watch(waited_ms_);
    control_->all_gather(kernels::partial_of(state_), partials_).wait();
    args.partials = partials_;
  }
  kernels::decide_step(args);
}

PendingStep Sharded::step(StepArgs args) {
  KEEL_CHECK(!optimizer_->requirements().closure, optimizer_->name(),
             " evaluates the loss several times in a step: step() needs a closure for it");
  KEEL_CHECK(!uses_averages_, "step() needs the weights that are trained at: use_averages(false)");
  decide(std::move(args));
  wait_until_released();
  clip_values();
  take_rows();
  if (matrices_) matrices_->begin(ranges_);
  if (offloads_) {
    update_offloaded();
  } else {
    const StepInput input{.step = state_, .shared = shared_};
    if (sums_) sums_->measure(parts_, ranges_, input);
    if (matrices_) matrices_->run(ranges_, input);
    optimizer_->update(ranges_, input);
    optimizer_->advance(input);
  }
  if (matrices_) matrices_->end(ranges_);
  for (std::size_t unit = 0; unit < units_.size(); ++unit)
    if (units_[unit]->trainable()) share_updates(unit);
  buffer_updates_->apply(state_);
  if (options_.compression.kind().feedback) {
    const bool taken = state().taken != 0;
    for (const auto& unit : units_)
      if (unit->compressor() != nullptr) unit->compressor()->end_step(taken);
  }
  zero_grad();
  return {*this, state_};
}

// In place of a factor on the whole gradient: each element that the optimizer reads.
void Sharded::clip_values() {
  if (options_.clip_by != ClipBy::value || options_.clip == 0) return;
  for (const auto& unit : units_) {
    if (!unit->trainable()) continue;
    const Tensor& gradient = unit->sparse() ? unit->own_rows().values() : unit->own_gradient();
    if (gradient.defined()) kernels::clip_values(gradient, state_, options_.clip);
  }
}

// Gives the ranges of tables whose gradients are kept as rows those of this step, where the optimizer works. Such a
// unit is one table, whose range is whole rows.
void Sharded::take_rows() {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const ShardUnit& unit = *units_[i];
    if (!unit.sparse() || unit_ranges_[i].count() == 0) continue;
    ParameterRange& range = ranges_[static_cast<std::size_t>(unit_ranges_[i].begin)];
    const RowGradient& gradient = unit.own_rows();
    std::vector<std::int64_t> rows(gradient.rows().begin(), gradient.rows().end());
    for (std::int64_t& row : rows) row -= unit.rows_of(unit.owned()).begin;
    range.rows = from_values(unit.update_context().host(), rows, {gradient.count()}, Purpose::workspace);
    range.gradient = kernels::to(gradient.values(), unit.update_context(), Purpose::workspace);
    if (offloads_) offload_bytes_ += static_cast<std::int64_t>(range.gradient.bytes());
  }
}

// The ranges of a unit, with a gradient that has come to the processor.
std::vector<ParameterRange> Sharded::with_gradients(std::span<const ParameterRange> ranges, Span of_unit,
                                                    std::size_t unit, const Tensor& gradient) const {
  std::vector<ParameterRange> moved;
  for (std::int64_t r = of_unit.begin; r < of_unit.end; ++r) {
    moved.push_back(ranges[static_cast<std::size_t>(r)]);
    if (units_[unit]->sparse()) continue;  // take_rows() has brought it
    const std::int64_t begin = moved.back().gradient.offset() - units_[unit]->own_gradient().offset();
    moved.back().gradient = gradient.slice(0, begin, begin + moved.back().gradient.numel());
  }
  return moved;
}

// Gradients come to the processor while it updates the units before, and values go back while it updates the next. An
// optimizer that measures or transforms needs all gradients first.
void Sharded::update_offloaded() {
  const HostCopy state(state_);
  std::vector<HostCopy> gradients;
  for (const auto& unit : units_) {
    gradients.emplace_back();
    if (!unit->trainable() || unit->sparse()) continue;
    gradients.back() = HostCopy(unit->own_gradient());
    offload_bytes_ += static_cast<std::int64_t>(unit->own_gradient().bytes());
  }
  const StepInput input{.step = state.get(), .shared = shared_};
  const auto all_with_gradients = [&](std::span<const ParameterRange> ranges, std::span<const Span> of_units) {
    std::vector<ParameterRange> all;
    for (std::size_t i = 0; i < units_.size(); ++i)
      if (units_[i]->trainable())
        for (ParameterRange& range : with_gradients(ranges, of_units[i], i, gradients[i].get()))
          all.push_back(std::move(range));
    return all;
  };
  if (sums_) sums_->measure(all_with_gradients(parts_, unit_parts_), ranges_, input);
  if (matrices_) matrices_->run(all_with_gradients(ranges_, unit_ranges_), input);
  for (std::size_t i = 0; i < units_.size(); ++i) {
    ShardUnit& unit = *units_[i];
    if (!unit.trainable()) continue;
    optimizer_->update(with_gradients(ranges_, unit_ranges_[i], i, unit.sparse() ? Tensor() : gradients[i].get()),
                       input);
    unit.send_values();
    offload_bytes_ += static_cast<std::int64_t>(unit.own_values().bytes());
  }
  optimizer_->advance(input);
}

StepState Sharded::state() const {
  const StepState state = kernels::read_step_state(state_);
  control_->poll();
  return state;
}

StepResult PendingStep::get() const {
  StepState state;
  std::memcpy(&state, state_.get().raw(), sizeof state);
  engine_->control_->poll();  // as state() does
  return {.taken = state.taken != 0,
          .steps_taken = state.steps,
          .lr = state.lr,
          .grad_norm = state.grad_norm,
          .weight = state.tokens,
          .loss_scale = state.loss_scale,
          .first_bad = engine_->parameter_at(state.first_bad),
          .evaluations = evaluations_};
}

void Sharded::zero_grad() {
  forget_gradients();
  buffer_updates_->forget();
}

void Sharded::forget_gradients() {
  for (const auto& unit : units_) unit->zero_grad();
  for (std::size_t i = 0; i < units_.size(); ++i)
    if (units_[i]->sparse() && unit_ranges_[i].count() > 0) {
      ParameterRange& range = ranges_[static_cast<std::size_t>(unit_ranges_[i].begin)];
      range.rows = range.gradient = Tensor();
    }
  weight_ = 0;
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
  double sum = waited_ms_ + buffer_updates_->waited_ms() + (sums_ ? sums_->waited_ms() : 0) +
               (matrices_ ? matrices_->waited_ms() : 0);
  for (const std::optional<RankSums>* each : {&dots_, &losses_}) sum += *each ? (*each)->waited_ms() : 0;
  for (const auto& unit : units_) sum += unit->waited_ms();
  return sum;
}

double Sharded::codec_ms() const {
  double sum = 0;
  for (const auto& unit : units_) sum += unit->codec_ms();
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
  const TensorParts buffers = buffer_updates_->parts();
  parts.insert(parts.end(), buffers.begin(), buffers.end());
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
  parts.insert(parts.end(), parameter_state_.begin(), parameter_state_.end());
  if (shared_.defined())
    parts.push_back({concat("shared.", optimizer_->shared_number()->name), shared_.shape(), 0, shared_});
  return parts;
}

TensorParts Sharded::compression_state() const {
  TensorParts parts;
  for (const auto& unit : units_) {
    if (unit->compressor() == nullptr) continue;
    const std::vector<Segment>& segments = unit->layout().segments;
    for (const Segment& segment : segments)
      parts.push_back({concat("residual.", segment.name), segment.shape, 0,
                       unit->compressor()->residual().slice(0, segment.offset, segment.offset + segment.numel)});
    if (!unit->compressor()->factors().defined()) continue;
    std::int64_t at = 0;
    for (const LowRank& part : low_rank_parts(unit->layout(), options_.compression.rank)) {
      const std::int64_t count = part.rank * part.columns;
      parts.push_back({concat("factor.", segments[part.segment].name),
                       {part.rank, part.columns},
                       0,
                       unit->compressor()->factors().slice(0, at, at + count)});
      at += count;
    }
  }
  return parts;
}

void Sharded::load_compression_state(std::span<const TensorParts> states) {
  wait_until_released();
  std::map<std::string, TensorPart> mine;
  for (const TensorPart& part : compression_state()) {
    kernels::fill(part.values, 0);
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
      const Tensor values = kernels::to(part.values, context_);
      if (is_factor) kernels::copy_into(place->second.values, values);
      else kernels::accumulate(place->second.values, values);
    }
}

void Sharded::check_weights(const TensorParts& weights) const { check_parts(weights, this->weights(), kOtherModel); }

void Sharded::check_optimizer_state(const TensorParts& state) const {
  check_parts(state, optimizer_state(), complaint_of(*optimizer_));
}

void Sharded::load_weights(const TensorParts& weights) {
  wait_until_released();
  copy_parts(weights, this->weights(), kOtherModel);
  adopt_weights();
}

void Sharded::adopt_weights() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    units_[unit]->adopt_weights();
    if (optimizer_->requirements().averages && !uses_averages_) {
      const Span own = unit_ranges_[unit];
      optimizer_->fill_values(
          std::span(ranges_).subspan(static_cast<std::size_t>(own.begin), static_cast<std::size_t>(own.count())));
      units_[unit]->send_values();
    }
    share_updates(unit);
  }
  buffer_updates_->share();
}

void Sharded::use_averages(bool use) {
  if (!optimizer_->requirements().averages || use == uses_averages_) return;
  wait_until_released();
  uses_averages_ = use;
  adopt_weights();
}

void Sharded::load_optimizer_state(const TensorParts& state, const StepState& steps) {
  wait_until_released();
  copy_parts(state, optimizer_state(), complaint_of(*optimizer_));
  if (optimizer_->requirements().averages) adopt_weights();
  adopt_steps(steps);
}

void Sharded::adopt_steps(const StepState& steps) {
  StepState initial = this->state();
  initial.steps = steps.steps;
  initial.loss_scale = steps.loss_scale;
  initial.hysteresis_left = steps.hysteresis_left;
  initial.good_in_a_row = steps.good_in_a_row;
  initial.skips_in_a_row = steps.skips_in_a_row;
  state_.copy_from_host(&initial);
}

}  // namespace keel
