#pragma once
// The documents of a file of tokens, where a token ends each of them.

#include <cstdint>
#include <functional>

#include "keel/data/dataset.h"
#include "keel/data/tokens.h"

namespace keel {

// Each with the field input_ids, whole numbers of one dimension: the tokens up to `end`, which is its last one. What
// comes behind the last `end` is a document, too; no tokens are no documents. Reads all tokens once, keeps 8 bytes for
// each document, and tells `progress` how many tokens of all are read. A token outside the vocabulary is an Error then,
// with its place.
DatasetPtr token_documents(Tokens tokens, std::uint32_t end,
                           const std::function<void(std::uint64_t done, std::uint64_t all)>& progress = {});

}  // namespace keel
