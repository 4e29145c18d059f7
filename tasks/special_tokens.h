#pragma once
// Special tokens of a tokenizer: those that its template puts around a text, and those that stand for no text.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "keel/tokenizers/tokenizer.h"

namespace keel {

// Before and behind one text, such as [CLS] and [SEP].
struct TextTemplate {
  std::vector<std::int32_t> before = {}, behind = {};
  std::int64_t size() const { return std::ssize(before) + std::ssize(behind); }
};
TextTemplate template_of(const Tokenizer& tokenizer);

// How a text is encoded without what the tokenizer's file says of its length.
EncodeOptions uncut(bool specials);

// For each number of the vocabulary: whether decoding leaves it out as special.
std::vector<bool> special_tokens(const Tokenizer& tokenizer);

// The number of the first of these texts that is a token; none: the vocabulary has none of them.
std::optional<std::int32_t> first_token_of(const Tokenizer& tokenizer, std::initializer_list<std::string_view> texts);

}  // namespace keel
