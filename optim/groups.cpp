#include "keel/optim/groups.h"

#include <algorithm>
#include <charconv>
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

std::int64_t depth_of(std::string_view name, std::int64_t blocks) {
  std::int64_t block = -1;
  any_part(name, '.', [&](std::string_view part) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), block);
    if (error == std::errc{} && end == part.data() + part.size() && block >= 0) return true;
    block = -1;
    return false;
  });
  if (block >= 0) return std::min(block, blocks - 1) + 1;
  const bool embedding = any_part(name, '.', [](std::string_view part) {
    return part == "wte" || part == "wpe" || part.find("embed") != std::string_view::npos;
  });
  return embedding ? 0 : blocks + 1;
}

GroupRule decay_by_depth(GroupRule rule, double factor, std::int64_t blocks) {
  return [rule = std::move(rule), factor, blocks](std::string_view name, const Dims& shape) {
    ParameterGroup group = rule(name, shape);
    group.lr_factor *= whole_power(factor, blocks + 1 - depth_of(name, blocks));
    return group;
  };
}

}  // namespace keel
