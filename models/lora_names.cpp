#include "keel/models/lora_names.h"

#include <algorithm>
#include <map>

#include "keel/config/schema_row.h"

namespace keel {
namespace {

// Path of a decoder's head; empty: the model is no decoder.
std::string path_of_output(Module& model) {
  std::string found;
  if (const auto* decoder = dynamic_cast<const CausalModel*>(&model))
    for_each_module(model, [&](const std::string& path, Module& module) {
      if (&module == &decoder->head()) found = path;
    });
  return found;
}

}  // namespace

std::string sibling_name(std::string_view path, std::string_view part) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string(part) : concat(path.substr(0, dot + 1), part);
}

const LowRankAdapter* NamedLinear::adapter() const {
  const auto found = std::ranges::find(linear->adapters, part, &LowRankAdapter::part);
  return found == linear->adapters.end() ? nullptr : &*found;
}

std::string NamedLinear::parameter(std::string_view which) const {
  return concat(packed, '.', part, part.empty() ? "" : ".", which, ".weight");
}

std::vector<NamedLinear> named_linears(Module& model, const HubNaming& naming) {
  const std::vector<std::string_view> heads = split_choices(naming.heads);
  const auto is_of_head = [&](std::string_view path) {
    if (path.starts_with(naming.base_prefix)) path.remove_prefix(naming.base_prefix.size());
    const std::string dotted = concat(path, '.');
    return std::ranges::any_of(heads, [&](std::string_view head) { return !head.empty() && dotted.starts_with(head); });
  };
  const std::string output = path_of_output(model);
  std::map<const Parameter::State*, int> places;
  for_each_parameter(model, [&](const std::string&, Parameter& parameter) { ++places[parameter.state().get()]; });
  std::vector<NamedLinear> all;
  for_each_module(model, [&](const std::string& path, Module& module) {
    auto* linear = dynamic_cast<Linear*>(&module);
    if (linear == nullptr) return;
    const bool is_head = path == output || is_of_head(path), is_tied = places[linear->weight.state().get()] > 1;
    if (linear->layers().empty()) all.push_back({path, path, "", linear, is_head, is_tied});
    for (const LinearPart& part : linear->layers())
      all.push_back({sibling_name(path, part.name), path, part.name, linear, is_head, is_tied});
  });
  return all;
}

std::string_view missing_prefix(Module& model, const HubNaming& naming) {
  bool is_there = naming.base_prefix.empty();
  for_each_parameter(model,
                     [&](const std::string& path, Parameter&) { is_there |= path.starts_with(naming.base_prefix); });
  return is_there ? std::string_view() : naming.base_prefix;
}

std::string name_in_files(Module& model, std::string_view prefix, std::string_view path) {
  return path == path_of_output(model) ? std::string(path) : concat(prefix, path);
}

}  // namespace keel
