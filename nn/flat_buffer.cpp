#include "keel/nn/flat_buffer.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "keel/kernels/elementwise.h"
#include "keel/nn/buffer.h"
#include "keel/nn/hidden_matrices.h"

namespace keel {
namespace {

// Where a parameter was met first, and how often.
struct Occurrence {
  std::string path;
  std::string unit;
  std::shared_ptr<Parameter::State> state;
  int count = 0;
};

// How often a forward pass uses what is at a path: as often as the modules on the way to it say, one in the other.
class Uses {
 public:
  explicit Uses(Module& model) {
    for_each_module(model, [&](const std::string& path, Module& module) {
      KEEL_CHECK(module.uses() > 0, "a forward pass uses the module '", path, "' at least once, got ", module.uses());
      if (module.uses() > 1) several_.emplace_back(path, module.uses());
    });
  }
  std::int64_t operator()(const std::string& path) const {
    std::int64_t uses = 1;
    for (const auto& [module, count] : several_)
      if (module.empty() || path == module || path.starts_with(module + '.')) uses *= count;
    return uses;
  }

 private:
  std::vector<std::pair<std::string, std::int64_t>> several_;
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

void give_memory(FlatBuffer& buffer, const Context& context, const PrecisionPolicy& policy, bool accumulates) {
  buffer.values = empty(context, {buffer.padded}, policy.parameter, Purpose::parameter);
  if (!buffer.trainable) return;
  if (policy.master()) buffer.master = empty(context, {buffer.padded}, policy.master_dtype(), Purpose::optimizer);
  buffer.row_dtype = accumulates ? policy.gradient : policy.parameter;
  if (buffer.sparse) return;
  buffer.gradient = empty(context, {buffer.padded}, buffer.row_dtype, Purpose::gradient);
  buffer.clear_gaps(0, buffer.gradient);
}

}  // namespace

std::vector<FlatBuffer> lay_out(Module& model, int shards, std::int64_t block) {
  const auto round_up = [](std::int64_t count, std::int64_t unit) { return (count + unit - 1) / unit * unit; };
  std::vector<FlatBuffer> buffers;
  const auto matrices = hidden_matrices(model);
  const Uses uses(model);
  for (const Occurrence& found : find_parameters(model)) {
    const bool sparse = found.state->sparse && found.state->trainable;
    KEEL_CHECK(!sparse || found.state->shape.size() == 2, "the gradient of ", found.path, ", of shape ",
               found.state->shape, ", cannot be kept as rows: it is no table (vocabulary, width)");
    const auto same = [&](const FlatBuffer& buffer) {
      return !sparse && !buffer.sparse && buffer.unit == found.unit && buffer.trainable == found.state->trainable;
    };
    auto at = std::find_if(buffers.begin(), buffers.end(), same);
    if (at == buffers.end()) {
      at = buffers.insert(buffers.end(), FlatBuffer{});
      at->unit = found.unit;
      at->trainable = found.state->trainable;
      at->sparse = sparse;
      if (!found.unit.empty()) at->uses = uses(found.unit);
    }
    const std::int64_t numel = product(found.state->shape);
    const std::int64_t offset = numel < block ? at->numel : round_up(at->numel, block);
    at->segments.push_back({found.path, found.state->shape, offset, numel, found.state});
    if (const auto rows = matrices.find(found.state.get()); rows != matrices.end())
      at->segments.back().matrices = rows->second;
    at->numel = offset + numel;
    at->tied = at->tied || found.count > 1 || uses(found.path) > 1;
  }
  for (FlatBuffer& buffer : buffers) {
    const std::int64_t width = buffer.sparse ? std::max<std::int64_t>(buffer.segments[0].shape[1], 1) : 1;
    buffer.padded = round_up(buffer.numel, std::lcm(kFlatAlignment, shards * std::lcm(width, block)));
  }
  return buffers;
}

void attach_parameters(FlatBuffer& buffer) {
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
    leaf.sparse = buffer.sparse;
    if (buffer.sparse) {
      leaf.dtype = buffer.row_dtype;
      continue;
    }
    leaf.grad = view_of(buffer.gradient);
    leaf.assigned = true;
  }
}

void initialise(const FlatBuffer& buffer, std::uint64_t seed, std::int64_t begin, const Tensor& target) {
  const Context& context = target.context();
  const std::int64_t end = begin + target.numel();
  for (const Segment& segment : buffer.segments) {
    const std::int64_t from = std::max(begin, segment.offset), to = std::min(end, segment.offset + segment.numel);
    if (from >= to) continue;
    const Tensor numbers = empty(context.host(), {to - from}, DType::f32, Purpose::workspace);
    segment.parameter->initializer.fill(context.host(), seed, segment.name, from - segment.offset, to - from,
                                        numbers.data<float>());
    kernels::copy_into(target.slice(0, from - begin, to - begin), kernels::to(numbers, context, Purpose::workspace));
  }
  buffer.clear_gaps(begin, target);
}

std::vector<FlatBuffer> materialize(Module& model, const Context& context, const MaterializeOptions& options) {
  std::vector<FlatBuffer> buffers = lay_out(model);
  for (FlatBuffer& buffer : buffers) {
    give_memory(buffer, context, options.policy, options.accumulates || buffer.tied);
    initialise(buffer, options.seed, 0, buffer.master.defined() ? buffer.master : buffer.values);
    if (buffer.master.defined()) kernels::copy_into(buffer.values, buffer.master);
    attach_parameters(buffer);
  }
  attach_buffers(model, context);
  return buffers;
}

void FlatBuffer::zero_grad() {
  for (const Segment& segment : segments) segment.parameter->variable.zero_grad();
}

void FlatBuffer::clear_gaps(std::int64_t begin, const Tensor& target) const {
  const auto clear = [&](std::int64_t from, std::int64_t to) {
    from = std::max(from - begin, std::int64_t{0});
    to = std::min(to - begin, target.numel());
    if (from < to) kernels::fill(target.slice(0, from, to), 0);
  };
  std::int64_t end = 0;  // of the segments before
  for (const Segment& segment : segments) {
    clear(end, segment.offset);
    end = segment.offset + segment.numel;
  }
  clear(end, padded);
}

void FlatBuffer::complete_gradient() {
  for (const Segment& segment : segments) {
    Leaf& leaf = *segment.parameter->variable.leaf();
    if (!leaf.has_grad && sparse) leaf.rows = RowGradient(values.context(), segment.shape, row_dtype);
    else if (!leaf.has_grad) kernels::fill(leaf.grad, 0);
    leaf.has_grad = true;
  }
}

}  // namespace keel
