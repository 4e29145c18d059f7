#include "keel/nn/state.h"

#include <map>
#include <set>

#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

constexpr std::size_t kNamesShown = 3;

std::string list_some(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kNamesShown; ++i) text += concat(i ? ", " : "", names[i]);
  if (names.size() > kNamesShown) text += concat(" and ", names.size() - kNamesShown, " more");
  return text;
}

}  // namespace

NamedTensors state_dict(Module& model) {
  NamedTensors state;
  std::set<const Parameter::State*> seen;
  for_each_parameter(model, [&](const std::string& path, Parameter& parameter) {
    if (seen.insert(parameter.state().get()).second) state.emplace_back(path, parameter.value());
  });
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

void load_state(std::vector<FlatBuffer>& buffers, const NamedTensors& state) {
  std::map<std::string, Tensor> by_name(state.begin(), state.end());
  std::vector<std::string> missing, reshaped, extra;
  std::set<std::string> known;
  for (const FlatBuffer& buffer : buffers)
    for (const Segment& segment : buffer.segments) {
      known.insert(segment.name);
      const auto found = by_name.find(segment.name);
      if (found == by_name.end()) missing.push_back(segment.name);
      else if (found->second.shape() != segment.shape)
        reshaped.push_back(concat(segment.name, ' ', found->second.shape(), " instead of ", segment.shape));
    }
  for (const auto& [name, tensor] : state)
    if (!known.contains(name)) extra.push_back(name);
  std::string complaint;
  if (!missing.empty()) complaint += concat("; missing: ", list_some(missing));
  if (!extra.empty()) complaint += concat("; unknown: ", list_some(extra));
  if (!reshaped.empty()) complaint += concat("; of another shape: ", list_some(reshaped));
  KEEL_CHECK(complaint.empty(), "these weights belong to another model", complaint);

  for (FlatBuffer& buffer : buffers)
    for (const Segment& segment : buffer.segments) {
      const Tensor& from = by_name.at(segment.name);
      for (const Tensor& flat : {buffer.values, buffer.master})
        if (flat.defined())
          kernels::copy_into(flat.slice(0, segment.offset, segment.offset + segment.numel).view(segment.shape), from);
    }
}

}  // namespace keel
