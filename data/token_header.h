#pragma once
// The first 64 bytes of a token file (keel/data/token_file.h).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

struct TokenHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t token_bytes;
  std::uint64_t vocabulary_size;
  std::uint64_t count;
  char tokenizer[24];  // of version 2: 20 bytes, and then the token that ends a document
  std::uint64_t hash;
};
static_assert(sizeof(TokenHeader) == 64);

// The hash of all that comes before it in the header.
std::uint64_t hash_of(const TokenHeader& header);

// What a file of these tokens begins with: of version 2 where a token ends each document, else of version 1. An Error
// that names `path` where the vocabulary or the name cannot be.
TokenHeader token_header(const std::string& path, std::int64_t vocabulary_size, const std::string& tokenizer,
                         std::int64_t count, std::optional<std::uint32_t> end_of_document = {});
// None: the file does not say.
std::optional<std::uint32_t> end_of_document_of(const TokenHeader& header);

// Tokens as the file has them. One outside the vocabulary is an Error that names path and position, the first being
// `at`.
std::vector<std::byte> token_bytes_of(const std::string& path, std::span<const std::uint32_t> tokens,
                                      std::int64_t vocabulary_size, std::int64_t at);

}  // namespace keel
