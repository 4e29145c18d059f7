#include "keel/trainer/group_rates.h"

#include <algorithm>
#include <map>
#include <set>

#include "keel/trainer/assembly.h"

namespace keel {

std::vector<NamedNumber> group_rates(const Config& config, Module& model) {
  const GroupRule rule = make_groups(config, model);
  const LayerDepths depths = depths_of(model);
  const std::vector<GroupPattern>& patterns = config.optimizer.groups;
  std::map<std::size_t, std::map<std::int64_t, double>> factors;  // by pattern, counted from 1 (0: none), and depth
  std::set<double> all;
  for_each_parameter(model, [&](const std::string& name, Parameter& parameter) {
    const auto found = depths.by_name.find(name);
    if (found == depths.by_name.end()) return;  // tied to one that was met before
    const auto fits = std::ranges::find_if(patterns, [&](const GroupPattern& each) { return each.fits(name); });
    const std::size_t pattern = fits == patterns.end() ? 0 : static_cast<std::size_t>(fits - patterns.begin()) + 1;
    const double factor = rule(name, parameter.shape()).lr_factor;
    factors[pattern][found->second] = factor;
    all.insert(factor);
  });
  std::vector<NamedNumber> rates;
  if (all.size() < 2) return rates;
  for (const auto& [pattern, by_depth] : factors) {
    const std::string group = pattern == 0 ? "" : concat("group_", pattern);
    const double first = by_depth.begin()->second;
    if (std::ranges::all_of(by_depth, [&](const auto& each) { return each.second == first; })) {
      rates.push_back({pattern == 0 ? "others" : group, first});
      continue;
    }
    for (const auto& [depth, factor] : by_depth)
      rates.push_back({concat(group, pattern == 0 ? "layer_" : "_layer_", depth), factor});
  }
  return rates;
}

}  // namespace keel
