#pragma once
// Whether two sequences of tokens are the same, by a short text.

#include <string>

#include "keel/data/tokens.h"

namespace keel {

// The number of the tokens and a hash of some, such as "4071 tokens, 9a3c51de02f1b644": of all where there are up to
// 2^20, else of 1024 pieces of 1024 tokens, at even distances from the first to the last.
std::string fingerprint_of(const Tokens& tokens);

}  // namespace keel
