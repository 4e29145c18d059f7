#include "keel/models/hub_tensors.h"

#include <algorithm>
#include <map>

#include "keel/config/schema_row.h"
#include "keel/nn/layers.h"

namespace keel {
namespace {

bool ends_with_one_of(std::string_view name, std::string_view endings) {
  const std::vector<std::string_view> each = split_choices(endings);
  return std::ranges::any_of(each, [&](std::string_view ending) { return name.ends_with(ending); });
}

// "layers.0.self_attn.qkv_proj" with the part q_proj: "layers.0.self_attn.q_proj".
std::string sibling(std::string_view path, std::string_view part) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string(part) : concat(path.substr(0, dot + 1), part);
}

// Of models whose parameters are called as the base model's.
void add_prefix(std::vector<HubTensor>& tensors, std::string_view prefix) {
  if (std::ranges::any_of(tensors, [&](const HubTensor& each) { return each.name.starts_with(prefix); })) return;
  for (HubTensor& each : tensors) each.name = concat(prefix, each.name);
}

}  // namespace

std::vector<HubTensor> hub_tensors(Module& model, const HubNaming& naming) {
  std::map<std::string, const Linear*> divided;
  for_each_module(model, [&](const std::string& path, Module& module) {
    if (const auto* linear = dynamic_cast<const Linear*>(&module); linear != nullptr && !linear->parts.empty())
      divided.emplace(path, linear);
  });
  std::vector<HubTensor> tensors;
  std::map<const Parameter::State*, std::size_t> seen;  // first tensor of each
  for_each_parameter(model, [&](const std::string& path, Parameter& parameter) {
    const auto [first, is_new] = seen.emplace(parameter.state().get(), tensors.size());
    if (!is_new) return tensors[first->second].also.push_back(path);
    const std::size_t dot = path.rfind('.');
    const auto linear = dot == std::string::npos ? divided.end() : divided.find(path.substr(0, dot));
    if (linear != divided.end()) {
      std::int64_t row = 0;
      for (const LinearPart& part : linear->second->parts) {
        Dims shape = parameter.shape();
        shape[0] = part.rows;
        tensors.push_back(
            {concat(sibling(linear->first, part.name), path.substr(dot)), path, shape, row, /*transposed=*/false});
        row += part.rows;
      }
      return;
    }
    HubTensor whole{path, path, parameter.shape()};
    whole.transposed = ends_with_one_of(path, naming.transposed);
    if (whole.transposed) whole.shape = {whole.shape[1], whole.shape[0]};
    tensors.push_back(std::move(whole));
  });
  add_prefix(tensors, naming.base_prefix);
  return tensors;
}

HubNames hub_names(Module& model, const HubNaming& naming) {
  HubNames names = {.tensors = hub_tensors(model, naming), .base_prefix = std::string(naming.base_prefix)};
  for (const std::string_view ending : split_choices(naming.ignored)) names.ignored.emplace_back(ending);
  for (const std::string_view pair : split_choices(naming.renamed)) {
    const std::size_t sign = pair.find('=');
    names.renamed.emplace_back(pair.substr(0, sign), pair.substr(sign + 1));
  }
  for (const std::string_view beginning : split_choices(naming.heads)) names.heads.emplace_back(beginning);
  return names;
}

}  // namespace keel
