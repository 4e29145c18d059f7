#include "keel/models/hub_tensors.h"

#include <algorithm>
#include <map>
#include <set>

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

}  // namespace

std::vector<HubTensor> hub_tensors(Module& model, const HubNaming& naming) {
  std::map<std::string, const Linear*> divided;
  for_each_module(model, [&](const std::string& path, Module& module) {
    if (const auto* linear = dynamic_cast<const Linear*>(&module); linear != nullptr && !linear->parts.empty())
      divided.emplace(path, linear);
  });
  std::vector<HubTensor> tensors;
  std::set<const Parameter::State*> seen;
  for_each_parameter(model, [&](const std::string& path, Parameter& parameter) {
    if (!seen.insert(parameter.state().get()).second) return;
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
  return tensors;
}

}  // namespace keel
