#pragma once
// Groups of parameters by their names, and rates that fall with the depth of a layer.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/optim/optimizer.h"

namespace keel {

// What holds for parameters whose name contains one of the words "a|b"; an empty pattern fits every name.
struct GroupPattern {
  std::string match;
  std::optional<double> weight_decay = {};  // instead of the optimizer's
  double lr_factor = 1;
  // Other options of the optimizer's, as YAML: {"betas", "[0.8, 0.99]"}.
  std::vector<std::pair<std::string, std::string>> options = {};
  bool operator==(const GroupPattern&) const = default;

  bool fits(std::string_view name) const;
};

// The first pattern that fits a name gives its decay and its factor on the rate. The patterns with options are numbered
// from 1, and that number is the variant. Where no pattern fits or none gives a decay, decay_matrices_only() does.
GroupRule group_by_name(std::vector<GroupPattern> patterns);

// `rule`, but parameters of these names keep their states in full precision where the optimizer keeps others in 8 bits.
GroupRule keep_full_state(GroupRule rule, std::vector<std::string> names);

// How far the layers of a model stand from its input. The items of lists of modules are layers, each by itself; so is
// what stands before, between and after them, such as embeddings and head.
struct LayerDepths {
  std::map<std::string, std::int64_t, std::less<>> by_name;  // of parameters; 0 is the first layer's
  std::int64_t deepest = 0;
  // An Error for a name that is no parameter's.
  std::int64_t of(std::string_view name) const;
};
// `names`: of all parameters, in the order in which the model visits them. A number between dots is an item of a list;
// of lists inside each other the outermost counts.
LayerDepths layer_depths(std::span<const std::string> names);
// `rule` with each rate times factor^(deepest - depth). Clark et al. 2020 (ELECTRA), section A.
GroupRule decay_by_depth(GroupRule rule, double factor, LayerDepths depths);

}  // namespace keel
