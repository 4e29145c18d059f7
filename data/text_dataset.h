#pragma once
// A text as tokens, split into a part to train on and a part to validate on.

#include <cstdint>
#include <memory>
#include <string>

#include "keel/data/tokens.h"
#include "keel/tokenizers/tokenizer.h"

namespace keel {

struct TokenFile;

struct TextDataset {
  Tokens train;
  Tokens validation;
  Tokens whole;                                // both
  std::shared_ptr<const Tokenizer> tokenizer;  // null for a token file whose tokenizer is not at hand
  std::string note = {};                       // of a token file that another program wrote
};

struct SplitOptions {
  double validation = 0.1;  // the last fraction of the tokens; in [0, 1)
  std::int64_t block = 1;   // tokens of a window; the training part must hold one and its targets
};

// Reads and encodes a text file, also one that gzip has compressed. A file that is missing, empty or too short for a
// block is an Error that says what to do. The second function makes a tokenizer of the named kind (byte, character) for
// the text.
TextDataset open_text(const std::string& path, std::shared_ptr<const Tokenizer> tokenizer, const SplitOptions& split);
TextDataset open_text(const std::string& path, std::string_view tokenizer, const SplitOptions& split);

// What made the tokens of an opened file: read from the `tokenizer.json` beside it, which must be of the name and size
// that the file states; without one, only the byte tokenizer is known. Null where none is at hand.
std::shared_ptr<const Tokenizer> tokenizer_of(const std::string& path, const TokenFile& file);

// Opens a token file (keel/data/token_file.h), or several shards as one sequence: the files of a folder, or those that
// a pattern fits (keel/data/file_list.h), with the tokenizer of the first.
TextDataset open_tokens(const std::string& path, const SplitOptions& split);

}  // namespace keel
