#pragma once
// The documents of a file of tokens, where a token ends each of them.

#include <cstdint>
#include <functional>

#include "keel/data/dataset.h"
#include "keel/data/tokens.h"

namespace keel {

// Each with the field input_ids: the tokens up to `end`, which is its last one. What comes behind the last `end` is a
// document, too. Reads all tokens once, and tells `progress` how far that is.
DatasetPtr token_documents(Tokens tokens, std::uint32_t end,
                           const std::function<void(std::uint64_t done, std::uint64_t all)>& progress = {});

}  // namespace keel
