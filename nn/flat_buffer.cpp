#include "keel/nn/flat_buffer.h"

#include <algorithm>
#include <map>

#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

// Where a parameter was met first, and how often.
struct Occurrence {
  std::string path;
  std::string unit;
  std::shared_ptr<Parameter::State> state;
  int count = 0;
};

std::vector<Occurrence> find_parameters(Module& model) {
  std::vector<std::string> units;
  for_each_module(model, [&](const std::string& path, Module& module) {
    if (module.is_unit() && !path.empty()) units.push_back(path);
  });
  const auto unit_of = [&](const std::string& path) {
    std::string innermost;
    for (const std::string& unit : units)
      if (path.starts_with(unit + '.') && unit.size() > innermost.size()) innermost = unit;
    return innermost;
  };
  std::vector<Occurrence> found;
  for_each_parameter(model, [&](const std::string& path, Parameter& parameter) {
    const auto same = [&](const Occurrence& other) { return other.state == parameter.state(); };
    auto at = std::find_if(found.begin(), found.end(), same);
    if (at == found.end()) at = found.insert(found.end(), {path, unit_of(path), parameter.state(), 0});
    if (++at->count > 1) at->unit.clear();
  });
  return found;
}

void initialise(FlatBuffer& buffer, std::uint64_t seed) {
  const Context& context = buffer.values.context();
  for (const Segment& segment : buffer.segments) {
    Tensor numbers = empty(context.host(), {segment.numel}, DType::f32, Purpose::workspace);
    segment.parameter->initializer.fill(context.host(), seed, segment.name, 0, segment.numel, numbers.data<float>());
    numbers = kernels::to(numbers, context, Purpose::workspace);
    for (const Tensor& target : {buffer.values, buffer.master})
      if (target.defined())
        kernels::copy_into(target.slice(0, segment.offset, segment.offset + segment.numel), numbers);
  }
  for (const Tensor& target : {buffer.values, buffer.master, buffer.gradient})
    if (target.defined()) kernels::fill(target.slice(0, buffer.numel, buffer.padded), 0);
}

void give_memory(FlatBuffer& buffer, const Context& context, const PrecisionPolicy& policy, bool accumulates) {
  buffer.padded = (buffer.numel + kFlatAlignment - 1) / kFlatAlignment * kFlatAlignment;
  buffer.values = empty(context, {buffer.padded}, policy.parameter, Purpose::parameter);
  if (!buffer.trainable) return;
  if (policy.master()) buffer.master = empty(context, {buffer.padded}, DType::f32, Purpose::optimizer);
  buffer.gradient =
      empty(context, {buffer.padded}, accumulates ? policy.gradient : policy.parameter, Purpose::gradient);
}

void make_views(FlatBuffer& buffer) {
  for (Segment& segment : buffer.segments) {
    const auto view_of = [&](const Tensor& flat) {
      return flat.slice(0, segment.offset, segment.offset + segment.numel).view(segment.shape);
    };
    Parameter::State& parameter = *segment.parameter;
    parameter.name = segment.name;
    parameter.variable = Variable(view_of(buffer.values), buffer.trainable);
    if (!buffer.trainable) continue;
    Leaf& leaf = *parameter.variable.leaf();
    leaf.name = segment.name;
    leaf.grad = view_of(buffer.gradient);
    leaf.assigned = true;
  }
}

}  // namespace

std::vector<FlatBuffer> materialize(Module& model, const Context& context, const MaterializeOptions& options) {
  std::vector<FlatBuffer> buffers;
  std::vector<char> accumulates;
  for (const Occurrence& found : find_parameters(model)) {
    const auto same = [&](const FlatBuffer& buffer) {
      return buffer.unit == found.unit && buffer.trainable == found.state->trainable;
    };
    auto at = std::find_if(buffers.begin(), buffers.end(), same);
    if (at == buffers.end()) {
      at = buffers.insert(buffers.end(), FlatBuffer{});
      at->unit = found.unit;
      at->trainable = found.state->trainable;
      accumulates.push_back(options.accumulates);
    }
    const std::int64_t numel = product(found.state->shape);
    at->segments.push_back({found.path, found.state->shape, at->numel, numel, found.state});
    at->numel += numel;
    if (found.count > 1) accumulates[static_cast<std::size_t>(at - buffers.begin())] = true;
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    give_memory(buffers[i], context, options.policy, accumulates[i] != 0);
    initialise(buffers[i], options.seed);
    make_views(buffers[i]);
  }
  return buffers;
}

void FlatBuffer::zero_grad() {
  for (const Segment& segment : segments) segment.parameter->variable.zero_grad();
}

void FlatBuffer::complete_gradient() {
  for (const Segment& segment : segments) {
    Leaf& leaf = *segment.parameter->variable.leaf();
    if (!leaf.has_grad) kernels::fill(leaf.grad, 0);
    leaf.has_grad = true;
  }
}

}  // namespace keel
