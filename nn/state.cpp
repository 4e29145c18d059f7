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

void copy_state(const NamedTensors& from, const NamedTensors& to, std::string_view complaint) {
  const std::map<std::string, Tensor> by_name(from.begin(), from.end());
  std::vector<std::string> missing, reshaped, extra;
  std::set<std::string_view> known;
  for (const auto& [name, target] : to) {
    known.insert(name);
    const auto found = by_name.find(name);
    if (found == by_name.end()) missing.push_back(name);
    else if (found->second.shape() != target.shape())
      reshaped.push_back(concat(name, ' ', found->second.shape(), " instead of ", target.shape()));
  }
  for (const auto& [name, tensor] : from)
    if (!known.contains(name)) extra.push_back(name);
  std::string differences;
  if (!missing.empty()) differences += concat("; missing: ", list_some(missing));
  if (!extra.empty()) differences += concat("; unknown: ", list_some(extra));
  if (!reshaped.empty()) differences += concat("; of another shape: ", list_some(reshaped));
  KEEL_CHECK(differences.empty(), complaint, differences);
  for (const auto& [name, target] : to) kernels::copy_into(target, kernels::to(by_name.at(name), target.context()));
}

void load_state(std::vector<FlatBuffer>& buffers, const NamedTensors& state) {
  copy_state(state, master_state_dict(buffers), "these weights belong to another model");
  for (const FlatBuffer& buffer : buffers)
    if (buffer.master.defined()) kernels::copy_into(buffer.values, buffer.master);
}

}  // namespace keel
