#include "keel/models/hub_tensors.h"

#include <algorithm>
#include <map>
#include <set>

#include "keel/config/schema_row.h"
#include "keel/models/lora_names.h"
#include "keel/nn/layers.h"

namespace keel {
namespace {

bool ends_with_one_of(std::string_view name, std::string_view endings) {
  const std::vector<std::string_view> each = split_choices(endings);
  return std::ranges::any_of(each, [&](std::string_view ending) { return name.ends_with(ending); });
}

using LinearsByPath = std::map<std::string, const Linear*, std::less<>>;

// Of the outputs of a layer's part, or of all of them.
std::optional<HubLowRank> low_rank_of(const Linear& linear, const std::string& path, std::string_view part) {
  const auto found = std::ranges::find(linear.adapters, part, &LowRankAdapter::part);
  if (found == linear.adapters.end()) return std::nullopt;
  const std::string beginning = part.empty() ? concat(path, '.') : concat(path, '.', part, '.');
  return HubLowRank{
      .a = concat(beginning, "lora_A.weight"), .b = concat(beginning, "lora_B.weight"), .scale = found->scale};
}

}  // namespace

std::vector<HubTensor> hub_tensors(Module& model, const HubNaming& naming) {
  LinearsByPath linears;
  std::set<const Parameter::State*> of_adapters;
  for_each_module(model, [&](const std::string& path, Module& module) {
    const auto* linear = dynamic_cast<const Linear*>(&module);
    if (linear == nullptr) return;
    linears.emplace(path, linear);
    for (const LowRankAdapter& adapter : linear->adapters)
      of_adapters.insert({adapter.a.state().get(), adapter.b.state().get()});
  });
  std::vector<HubTensor> tensors;
  std::map<const Parameter::State*, std::size_t> seen;  // first tensor of each
  for_each_parameter(model, [&](const std::string& path, Parameter& parameter) {
    if (of_adapters.contains(parameter.state().get())) return;
    const auto [first, is_new] = seen.emplace(parameter.state().get(), tensors.size());
    if (!is_new) return tensors[first->second].also.push_back(path);
    const std::size_t dot = path.rfind('.');
    const auto linear = dot == std::string::npos ? linears.end() : linears.find(path.substr(0, dot));
    const bool is_weight = linear != linears.end() && path.substr(dot) == ".weight";
    if (linear != linears.end() && !linear->second->layers().empty()) {
      std::int64_t row = 0;
      for (const LinearPart& part : linear->second->layers()) {
        Dims shape = parameter.shape();
        shape[0] = part.rows;
        tensors.push_back(
            {concat(sibling_name(linear->first, part.name), path.substr(dot)), path, shape, row, /*transposed=*/false});
        if (is_weight) tensors.back().low_rank = low_rank_of(*linear->second, linear->first, part.name);
        row += part.rows;
      }
      return;
    }
    HubTensor whole{path, path, parameter.shape()};
    if (is_weight) whole.low_rank = low_rank_of(*linear->second, linear->first, "");
    whole.transposed = ends_with_one_of(path, naming.transposed);
    if (whole.transposed) whole.shape = {whole.shape[1], whole.shape[0]};
    tensors.push_back(std::move(whole));
  });
  const std::string_view prefix = missing_prefix(model, naming);
  for (HubTensor& each : tensors) each.name = concat(prefix, each.name);
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
