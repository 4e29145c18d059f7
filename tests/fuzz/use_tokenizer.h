#pragma once
// What is done with a tokenizer that a file has given: laws that hold whatever the file is.

#include "keel/tokenizers/tokenizer.h"

namespace keel::fuzz {

void use_tokenizer(const Tokenizer& tokenizer);

}  // namespace keel::fuzz
