#pragma once
// Expressions that published tokenizers use, each with a scanner by hand.

#include <string_view>
#include <vector>

#include "keel/tokenizers/pattern.h"

namespace keel {

struct KnownExpression {
  std::string_view text;
  std::string_view of;  // whose tokenizers have it
  PatternPtr pattern;
};

const std::vector<KnownExpression>& known_expressions();

// null: the expression is not known.
PatternPtr find_known_expression(std::string_view text);

}  // namespace keel
