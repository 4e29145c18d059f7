#pragma once
// Expressions that no scanner is known for, compiled by Oniguruma where the build has it.

#include <string_view>

#include "keel/tokenizers/pattern.h"

namespace keel {

// UTF-8, Ruby's syntax. A malformed expression is an Error with Oniguruma's reason; so is a search that takes more
// steps or memory than an honest expression needs. null: the build has no Oniguruma.
PatternPtr oniguruma_pattern(std::string_view expression);

}  // namespace keel
