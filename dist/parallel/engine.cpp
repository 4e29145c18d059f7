#include "keel/dist/parallel/engine.h"

#include <algorithm>
#include <cmath>

#include "keel/autograd/backward.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/update.h"

namespace keel {
namespace {

Tensor view_of(const Tensor& flat, const Segment& segment) {
  return flat.slice(0, segment.offset, segment.offset + segment.numel).view(segment.shape);
}

// The fp32 rounding is part of the rule: every rank and every stage must arrive at the same factor.
// As PyTorch's clip_grad_norm_.
double clip_factor(double norm, double longest) {
  if (longest <= 0) return 1;
  return std::min(1.0f, static_cast<float>(longest) / (static_cast<float>(norm) + 1e-6f));
}

}  // namespace

Engine::Engine(Module& model, const Context& context, std::unique_ptr<const Optimizer> optimizer,
               const EngineOptions& options)
    : context_(context),
      optimizer_(std::move(optimizer)),
      clip_(options.clip),
      buffers_(materialize(
          model, context, {.policy = options.policy, .seed = options.seed, .accumulates = options.micro_batches > 1})) {
  make_state();
  make_ranges(options.groups);
}

void Engine::make_state() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const FlatBuffer& buffer = buffers_[i];
    if (!buffer.trainable) continue;
    const DType dtype = buffer.master.defined() ? DType::f32 : buffer.values.dtype();
    for (const std::string_view name : optimizer_->state_names())
      states_.push_back({std::string(name), i, zeros(context_, {buffer.padded}, dtype, Purpose::optimizer)});
  }
}

// Neighbours of one group are updated as one range.
void Engine::make_ranges(const GroupRule& groups) {
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
      ParameterRange range{part(buffer.values), part(buffer.master), part(buffer.gradient), {}, group};
      for (const State& state : states_)
        if (state.buffer == i) range.state.push_back(part(state.values));
      ranges_.push_back(std::move(range));
    }
  }
}

void Engine::backward(const Variable& loss, std::int64_t tokens) {
  KEEL_CHECK(tokens >= 0, "the tokens of a loss must not be negative, got ", tokens);
  if (tokens == 0) return;
  keel::backward(loss, static_cast<double>(tokens));
  tokens_ += tokens;
}

StepResult Engine::step(double lr) {
  KEEL_CHECK(tokens_ > 0, "step() needs a backward() with at least one token before it");
  double squares = 0;
  for (FlatBuffer& buffer : buffers_) {
    if (!buffer.trainable) continue;
    buffer.complete_gradient();
    squares += kernels::sum_of_squares(buffer.gradient.slice(0, 0, buffer.numel));
  }
  const double scale = 1.0 / static_cast<double>(tokens_);
  StepResult result;
  result.grad_norm = std::sqrt(squares) * scale;
  result.taken = std::isfinite(result.grad_norm);
  if (result.taken) {
    ++steps_taken_;
    optimizer_->update(
        ranges_, {.lr = lr, .step = steps_taken_, .gradient_scale = scale * clip_factor(result.grad_norm, clip_)});
  } else {
    result.first_bad = first_bad_gradient();
  }
  zero_grad();
  return result;
}

void Engine::zero_grad() {
  for (FlatBuffer& buffer : buffers_)
    if (buffer.trainable) buffer.zero_grad();
  tokens_ = 0;
}

std::string Engine::first_bad_gradient() const {
  for (const FlatBuffer& buffer : buffers_) {
    if (!buffer.trainable) continue;
    for (const Segment& segment : buffer.segments)
      if (!kernels::all_finite(view_of(buffer.gradient, segment))) return segment.name;
  }
  return {};
}

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
  steps_taken_ = steps_taken;
}

}  // namespace keel
