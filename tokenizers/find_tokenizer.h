#pragma once
// A tokenizer by what a user calls it.

#include <string>
#include <string_view>

#include "keel/tokenizers/tokenizer.h"

namespace keel {

// "byte, character, a folder or file, ...": for messages and help.
std::string known_tokenizers();

// Whether a tokenizer of this name is made of the text that it is for.
bool is_made_of_text(std::string_view name);

// Whether there is such a path, or such a model in the local cache; the plain ones always are.
bool has_tokenizer(std::string_view name);

// `name` is "byte", "character" (of `text`), a path (a folder of a model, or one of its files:
// keel/tokenizers/tokenizer_files.h), or a model's name in the local cache (keel/runtime/hub_cache.h). Where none of
// these is there, an Error lists them.
TokenizerPtr find_tokenizer(std::string_view name, std::string_view text);

// Tokenizer::to_json() as a file.
void save_tokenizer(const std::string& path, const Tokenizer& tokenizer);

}  // namespace keel
