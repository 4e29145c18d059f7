#include "keel/nn/buffer.h"

#include <set>
#include <utility>

#include "keel/autograd/backward.h"
#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

// Each once, with the path where it was met first.
std::vector<std::pair<std::string, std::shared_ptr<Buffer::State>>> find_buffers(Module& model) {
  std::vector<std::pair<std::string, std::shared_ptr<Buffer::State>>> found;
  std::set<const Buffer::State*> seen;
  for_each_buffer(model, [&](const std::string& path, Buffer& buffer) {
    if (seen.insert(buffer.state().get()).second) found.emplace_back(path, buffer.state());
  });
  return found;
}

}  // namespace

Buffer Buffer::constant(const Dims& shape, double value) {
  State state;
  state.shape = shape;
  state.initial = value;
  return Buffer(std::move(state));
}

Buffer Buffer::moving_average(const Dims& shape, double momentum, double initial) {
  KEEL_CHECK(momentum > 0 && momentum <= 1, "the momentum of a moving average must be in (0, 1], got ", momentum);
  State state;
  state.shape = shape;
  state.initial = initial;
  state.momentum = momentum;
  return Buffer(std::move(state));
}

const Tensor& Buffer::value() const {
  KEEL_CHECK(state_ != nullptr, "an absent buffer has no value");
  KEEL_CHECK(state_->value.defined(), "a buffer of shape ", state_->shape,
             " has no memory yet; call materialize(model, context) first");
  return state_->value;
}

void Buffer::observe(const Forward& pass, const Tensor& x, std::int64_t count) const {
  KEEL_CHECK(state_ != nullptr && state_->momentum > 0, "only a moving average observes");
  KEEL_CHECK(x.shape() == state_->shape, "the buffer ", state_->name, " has shape ", state_->shape,
             ", but what was observed has ", x.shape());
  KEEL_CHECK(count > 0, "the buffer ", state_->name, ": a mean over ", count, " values was observed");
  if (!pass.observes || state_->closed || BackwardPass::current() != nullptr) return;
  const Tensor sum = empty(x.context(), x.shape(), DType::f32, Purpose::workspace);
  kernels::copy_into(sum, x);
  kernels::scale(sum, static_cast<double>(count));
  if (state_->observed.defined()) kernels::accumulate(state_->observed, sum);
  else state_->observed = sum;
  state_->count += count;
}

std::vector<std::shared_ptr<Buffer::State>> attach_buffers(Module& model, const Context& context) {
  std::set<std::string> parameters;
  for_each_parameter(model, [&](const std::string& path, Parameter&) { parameters.insert(path); });
  std::vector<std::shared_ptr<Buffer::State>> buffers;
  for (auto& [path, state] : find_buffers(model)) {
    KEEL_CHECK(!parameters.contains(path), "the model has a parameter and a buffer named ", path);
    state->name = path;
    state->value = empty(context, state->shape, DType::f32, Purpose::parameter);
    kernels::fill(state->value, state->initial);
    buffers.push_back(std::move(state));
  }
  return buffers;
}

BufferCount count_buffers(Module& model) {
  BufferCount count;
  for (const auto& [path, state] : find_buffers(model)) {
    count.numbers += product(state->shape);
    ++count.buffers;
    if (state->momentum == 0) continue;
    count.moving_numbers += product(state->shape);
    ++count.moving_buffers;
  }
  return count;
}

}  // namespace keel
