#include "keel/nn/state.h"

#include <set>

#include "keel/kernels/elementwise.h"
#include "keel/nn/buffer.h"

namespace keel {

namespace {

void add_buffers(Module& model, NamedTensors& state) {
  std::set<const Buffer::State*> seen;
  for_each_buffer(model, [&](const std::string& path, Buffer& buffer) {
    if (seen.insert(buffer.state().get()).second) state.emplace_back(path, buffer.value());
  });
}

}  // namespace

NamedTensors state_dict(Module& model) {
  NamedTensors state;
  std::set<const Parameter::State*> seen;
  for_each_parameter(model, [&](const std::string& path, Parameter& parameter) {
    if (seen.insert(parameter.state().get()).second) state.emplace_back(path, parameter.value());
  });
  add_buffers(model, state);
  return state;
}

NamedTensors master_state_dict(const std::vector<FlatBuffer>& buffers) {
  NamedTensors state;
  for (const FlatBuffer& buffer : buffers) {
    const Tensor& flat = buffer.master.defined() ? buffer.master : buffer.values;
    for (const Segment& segment : buffer.segments)
      state.emplace_back(segment.name,
                         flat.slice(0, segment.offset, segment.offset + segment.numel).view(segment.shape));
  }
  return state;
}

void copy_state(const NamedTensors& from, const NamedTensors& to, std::string_view complaint) {
  copy_parts(parts_of(from), parts_of(to), complaint);
}

void load_state(Module& model, std::vector<FlatBuffer>& flat, const NamedTensors& state) {
  NamedTensors mine = master_state_dict(flat);
  add_buffers(model, mine);
  copy_state(state, mine, "these weights belong to another model");
  for (const FlatBuffer& each : flat)
    if (each.master.defined()) kernels::copy_into(each.values, each.master);
}

}  // namespace keel
