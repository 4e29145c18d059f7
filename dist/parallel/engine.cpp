#include "keel/dist/parallel/engine.h"

#include <cstring>

#include "keel/autograd/backward.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/update.h"

namespace keel {
namespace {

Tensor view_of(const Tensor& flat, const Segment& segment) {
  return flat.slice(0, segment.offset, segment.offset + segment.numel).view(segment.shape);
}

PrecisionPolicy policy_for(const Optimizer& optimizer, PrecisionPolicy policy) {
  policy.keeps_master = optimizer.needs_master();
  return policy;
}

}  // namespace

Engine::Engine(Module& model, const Context& context, std::unique_ptr<const Optimizer> optimizer,
               const EngineOptions& options)
    : context_(context),
      optimizer_(std::move(optimizer)),
      clip_(options.clip),
      buffers_(materialize(model, context,
                           {.policy = policy_for(*optimizer_, options.policy),
                            .seed = options.seed,
                            .accumulates = options.micro_batches > 1})) {
  step_state_ = kernels::make_step_state(context_);
  make_state();
  make_ranges(options.groups);
}

void Engine::make_state() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const FlatBuffer& buffer = buffers_[i];
    if (!buffer.trainable) continue;
    const DType dtype = buffer.values.dtype() == DType::f64 ? DType::f64 : DType::f32;
    for (const std::string_view name : optimizer_->state_names())
      states_.push_back({std::string(name), i, zeros(context_, {buffer.padded}, dtype, Purpose::optimizer)});
  }
}

// Neighbours of one group are updated as one range.
void Engine::make_ranges(const GroupRule& groups) {
  std::int64_t before = 0;  // numbers in the buffers before
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const FlatBuffer& buffer = buffers_[i];
    if (!buffer.trainable) continue;
    for (std::size_t first = 0, last; first < buffer.segments.size(); first = last) {
      const auto group_of = [&](std::size_t at) { return groups(buffer.segments[at].name, buffer.segments[at].shape); };
      const ParameterGroup group = group_of(first);
      for (last = first + 1; last < buffer.segments.size() && group_of(last) == group;) ++last;
      const std::int64_t begin = buffer.segments[first].offset;
      const std::int64_t end = buffer.segments[last - 1].offset + buffer.segments[last - 1].numel;
      const auto part = [&](const Tensor& flat) { return flat.defined() ? flat.slice(0, begin, end) : Tensor(); };
      ParameterRange range{part(buffer.values), part(buffer.master), part(buffer.gradient), {}, group, before + begin};
      for (const State& state : states_)
        if (state.buffer == i) range.state.push_back(part(state.values));
      ranges_.push_back(std::move(range));
    }
    before += buffer.numel;
  }
}

void Engine::backward(const Variable& loss, std::int64_t tokens) {
  count_tokens(tokens);
  if (tokens != 0) keel::backward(loss, static_cast<double>(tokens));
}

void Engine::count_tokens(std::int64_t tokens) {
  KEEL_CHECK(tokens >= 0, "the tokens of a loss must not be negative, got ", tokens);
  tokens_ += tokens;
}

PendingStep Engine::step(double lr) {
  StepArgs args;
  args.lr = lr;
  return step(args);
}

PendingStep Engine::step(const Tensor& rates) {
  StepArgs args;
  args.rates = rates;
  return step(args);
}

PendingStep Engine::step(StepArgs args) {
  KEEL_CHECK(tokens_ > 0, "step() needs a backward() with at least one token before it");
  std::int64_t first = 0;
  for (FlatBuffer& buffer : buffers_) {
    if (!buffer.trainable) continue;
    buffer.complete_gradient();
    kernels::add_squares(buffer.gradient.slice(0, 0, buffer.numel), step_state_, first);
    first += buffer.numel;
  }
  args.state = step_state_;
  kernels::add_tokens(step_state_, static_cast<double>(tokens_));
  args.clip = clip_;
  kernels::decide_step(args);
  optimizer_->update(ranges_, {.step = step_state_});
  zero_grad();
  return {*this, step_state_};
}

StepResult PendingStep::get() const {
  StepState state;
  std::memcpy(&state, state_.get().raw(), sizeof state);
  return {.taken = state.taken != 0,
          .steps_taken = state.steps,
          .lr = state.lr,
          .grad_norm = state.grad_norm,
          .first_bad = engine_->parameter_at(state.first_bad)};
}

void Engine::zero_grad() {
  for (FlatBuffer& buffer : buffers_)
    if (buffer.trainable) buffer.zero_grad();
  tokens_ = 0;
}

// The trainable parameter that holds an element, counted as step() hands buffers to add_squares(); "" past the last.
std::string Engine::parameter_at(std::int64_t element) const {
  for (const FlatBuffer& buffer : buffers_) {
    if (!buffer.trainable) continue;
    for (const Segment& segment : buffer.segments)
      if (element < segment.offset + segment.numel) return segment.name;
    element -= buffer.numel;
  }
  return {};
}

std::int64_t Engine::steps_taken() const { return kernels::read_step_state(step_state_).steps; }

NamedTensors Engine::weights() const { return master_state_dict(buffers_); }

NamedTensors Engine::optimizer_state() const {
  NamedTensors named;
  for (const State& state : states_)
    for (const Segment& segment : buffers_[state.buffer].segments)
      named.emplace_back(concat(state.name, '.', segment.name), view_of(state.values, segment));
  return named;
}

void Engine::load_weights(const NamedTensors& weights) { load_state(buffers_, weights); }

void Engine::load_optimizer_state(const NamedTensors& state, std::int64_t steps_taken) {
  copy_state(state, optimizer_state(),
             concat("this optimizer state is not that of ", optimizer_->name(), " for this model"));
  StepState initial;
  initial.steps = steps_taken;
  step_state_.copy_from_host(&initial);
}

}  // namespace keel
