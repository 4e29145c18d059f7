#include "keel/optim/groups.h"

#include <algorithm>
#include <utility>

#include "keel/kernels/rules/rule.h"

namespace keel {
namespace {

// Calls f with each part of `text` between separators until it returns true; false if it never does.
template <class F>
bool any_part(std::string_view text, char separator, const F& f) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    if (f(text.substr(begin, end - begin))) return true;
    begin = end + 1;
  }
  return false;
}

// "h.0" of "h.0.attn.c_proj.weight"; empty where no part of the name is a number.
std::string_view outermost_item(std::string_view name) {
  std::size_t end = 0;
  const bool found = any_part(name, '.', [&](std::string_view part) {
    end = static_cast<std::size_t>(part.data() + part.size() - name.data());
    return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
  });
  return found ? name.substr(0, end) : std::string_view();
}

}  // namespace

bool GroupPattern::fits(std::string_view name) const {
  return any_part(match, '|', [&](std::string_view word) {
    return (match.empty() || !word.empty()) && name.find(word) != std::string_view::npos;
  });
}

GroupRule group_by_name(std::vector<GroupPattern> patterns) {
  return [patterns = std::move(patterns)](std::string_view name, const Dims& shape) {
    ParameterGroup group = decay_matrices_only(name, shape);
    std::size_t variants = 0;
    for (const GroupPattern& pattern : patterns) {
      variants += pattern.options.empty() ? 0 : 1;
      if (!pattern.fits(name)) continue;
      if (!pattern.options.empty()) group.variant = variants;
      group.lr_factor = pattern.lr_factor;
      group.weight_decay = pattern.weight_decay;
      break;
    }
    return group;
  };
}

GroupRule keep_full_state(GroupRule rule, std::vector<std::string> names) {
  return [rule = std::move(rule), names = std::move(names)](std::string_view name, const Dims& shape) {
    ParameterGroup group = rule(name, shape);
    group.full_state = std::find(names.begin(), names.end(), name) != names.end();
    return group;
  };
}

std::int64_t LayerDepths::of(std::string_view name) const {
  const auto found = by_name.find(name);
  KEEL_CHECK(found != by_name.end(), "the model whose layers are counted has no parameter ", name);
  return found->second;
}

LayerDepths layer_depths(std::span<const std::string> names) {
  LayerDepths depths;
  std::string_view layer;  // the list's item, or empty between lists
  for (const std::string& name : names) {
    const std::string_view next = outermost_item(name);
    if (!depths.by_name.empty() && next != layer) ++depths.deepest;
    layer = next;
    depths.by_name.emplace(name, depths.deepest);
  }
  return depths;
}

GroupRule decay_by_depth(GroupRule rule, double factor, LayerDepths depths) {
  return [rule = std::move(rule), factor, depths = std::move(depths)](std::string_view name, const Dims& shape) {
    ParameterGroup group = rule(name, shape);
    group.lr_factor *= whole_power(factor, depths.deepest - depths.of(name));
    return group;
  };
}

}  // namespace keel
