#pragma once
// Files of tokens: a checked header of 64 bytes, then the tokens, 2 or 4 bytes each, little-endian.
//
// Header: "KEELTOK1", then u32 version, u32 bytes of a token, u64 vocabulary size, u64 token count, 24 bytes of the
// tokenizer's name padded with zeros, u64 FNV-1a hash of the 56 bytes before it. Of version 2 the name has 20 bytes,
// and u32 end-of-document token follows.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/data/tokens.h"
#include "keel/runtime/file.h"

namespace keel {

struct TokenFile {
  Tokens tokens;                                      // in the file, which stays open
  std::string tokenizer;                              // that made them; empty: the file does not say
  std::string note = {};                              // of a file that another program wrote: what it was taken for
  std::optional<std::uint32_t> end_of_document = {};  // the token behind each document; none: the file does not say
  std::string why_no_end = {};                        // of shards that say otherwise: which two, and what; else empty
};

// Opens a token file, of keel or of a program that keel knows (keel/data/foreign_tokens.h). A wrong header or size is
// an Error that names path and reason; so is a token outside the vocabulary, found at once in files of up to
// kScannedTokens tokens and otherwise when it is read. Where a file does not say its vocabulary, it ends with the
// largest token, or, in a file of more tokens than that, with GPT-2's.
TokenFile open_token_file(const std::string& path);
inline constexpr std::int64_t kScannedTokens = 1 << 24;
inline constexpr std::uint32_t kTokenFileVersion = 1, kTokenFileEndVersion = 2;
inline constexpr std::string_view kTokenFileMagic = "KEELTOK1";  // the first bytes of a token file

// The files of tokens that a name stands for (keel/data/file_list.h): of a folder all but what `keel tokenize` keeps
// beside them, the tokenizer and what it has not ended. An Error where there is none.
std::vector<std::string> token_files_at(const std::string& path);

// Several as one sequence, in this order; at least one. Shards of different tokenizers are an Error that names two. Of
// shards that do not say their vocabulary, all have the largest. They say what ends a document where all say the same.
TokenFile open_token_files(const std::vector<std::string>& paths);

// Writes a token file piece by piece, atomically (keel/runtime/file.h): it appears at commit().
class TokenFileWriter {
 public:
  // `tokenizer`: at most 23 bytes, the name that made the tokens.
  TokenFileWriter(std::string path, std::int64_t vocabulary_size, std::string tokenizer);
  // A token outside the vocabulary is an Error that names its position.
  void append(std::span<const std::uint32_t> tokens);
  void commit();

 private:
  AtomicFile file_;
  std::int64_t vocabulary_size_;
  std::string tokenizer_;
  std::int64_t count_ = 0;
};

}  // namespace keel
