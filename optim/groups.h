#pragma once
// Groups of parameters by their names, and rates that fall with the depth of a layer.

#include <optional>
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

// The depth of a parameter in a model of so many blocks: 0 for embeddings, i + 1 in block i (the first whole number
// between dots of the name), blocks + 1 for what comes after the last.
std::int64_t depth_of(std::string_view name, std::int64_t blocks);
// `rule` with each rate times factor^(blocks + 1 - depth). Clark et al. 2020 (ELECTRA), section A.
GroupRule decay_by_depth(GroupRule rule, double factor, std::int64_t blocks);

}  // namespace keel
