#pragma once
// A trained tokenizer as a file.

#include <string>
#include <vector>

#include "keel/tokenizers/train_bpe.h"

namespace keel {

// tokenizer.json of a byte-level BPE, which the Tokenizers library reads, too: GPT-2's pattern, no prefix space.
std::string byte_level_json(const TrainedBpe& trained, const std::vector<std::string>& specials);

}  // namespace keel
