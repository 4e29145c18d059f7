#pragma once
// Token files of other programs: of llm.c, which begin with a header of 256 32-bit words, and of nanoGPT, which are
// tokens of 16 bits and nothing else. docs/token-files.md describes all formats.

#include <cstdint>
#include <optional>
#include <string_view>

#include "keel/runtime/file.h"

namespace keel {

struct ForeignTokens {
  std::string_view program;         // that writes such files
  std::uint64_t offset = 0;         // bytes before the first token
  std::int64_t count = 0;           // tokens
  int token_bytes = 2;              // of each
  std::int64_t vocabulary = 0;      // tokens of the tokenizer that made them; 0: the file does not say
  std::string_view tokenizer = {};  // its name; empty: the file does not say
};

// Recognises a file of another program. llm.c's begin with its numbers; a header that is damaged is an Error that says
// why. nanoGPT's have no mark: a file named *.bin whose bytes are no text and no beginning of a file of keel's is one.
std::optional<ForeignTokens> foreign_tokens(const InputFile& file);

}  // namespace keel
