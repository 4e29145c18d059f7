#pragma once
// tokenizer.json, read in one pass: vocabularies and merges, which are nearly all of it, become no JSON values.

#include <string>
#include <string_view>

#include "keel/runtime/json.h"
#include "keel/tokenizers/component_list.h"

namespace keel {

struct TokenizerJson {
  Json rest;  // without model.vocab and model.merges
  ModelTokens tokens;
};

// `place` names the file in messages.
TokenizerJson parse_tokenizer_json(std::string_view json, const std::string& place);

// The largest number that a token may have in a file of so many bytes: tables by number stay as small as the file
// justifies.
std::int64_t largest_token_id(std::size_t file_bytes);

}  // namespace keel
