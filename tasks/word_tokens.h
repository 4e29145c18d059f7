#pragma once
// Tokens of a text that is given as words.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/tasks/text_records.h"

namespace keel {

inline constexpr std::int64_t kNoWord = -1;

struct WordTokens {
  Encoding encoding;
  std::vector<std::int64_t> first_of;  // of each token: the word whose first one it is, from 0 on, else kNoWord
};

// The words with a space between them, as one text. A token belongs to the first word that it has a byte of. A word
// without a token of its own, since it was cut off, since the tokenizer drops it, or since a token has it and the word
// before together, is in no entry of `first_of`.
WordTokens encoded_words(const Tokenizer& tokenizer, std::span<const std::string> words, const TextLimit& limit);

}  // namespace keel
