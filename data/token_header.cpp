#include "keel/data/token_header.h"

#include <bit>
#include <cstring>
#include <string>
#include <string_view>

#include "keel/data/token_file.h"
#include "keel/data/tokens.h"
#include "keel/runtime/error.h"
#include "keel/runtime/random.h"

namespace keel {

static_assert(std::endian::native == std::endian::little, "token files hold little-endian numbers");

std::uint64_t hash_of(const TokenHeader& header) {
  return fnv1a64({reinterpret_cast<const char*>(&header), offsetof(TokenHeader, hash)});
}

namespace {

constexpr std::size_t kNameBeforeEnd = sizeof(TokenHeader::tokenizer) - sizeof(std::uint32_t);

}  // namespace

std::optional<std::uint32_t> end_of_document_of(const TokenHeader& header) {
  if (header.version < kTokenFileEndVersion) return std::nullopt;
  std::uint32_t end = 0;
  std::memcpy(&end, header.tokenizer + kNameBeforeEnd, sizeof end);
  return end;
}

TokenHeader token_header(const std::string& path, std::int64_t vocabulary_size, const std::string& tokenizer,
                         std::int64_t count, std::optional<std::uint32_t> end_of_document) {
  KEEL_CHECK(vocabulary_size > 0 && vocabulary_size <= kMaxVocabulary, "'", path, "': a vocabulary has 1 to ",
             kMaxVocabulary, " tokens, not ", vocabulary_size);
  const std::size_t room = end_of_document ? kNameBeforeEnd : sizeof(TokenHeader::tokenizer);
  KEEL_CHECK(tokenizer.size() < room && tokenizer.find('\0') == std::string::npos, "'", path,
             "': the tokenizer's name '", tokenizer, "' must have fewer than ", room, " bytes, none of them zero");
  TokenHeader header = {};
  kTokenFileMagic.copy(header.magic, sizeof header.magic);
  header.version = end_of_document ? kTokenFileEndVersion : kTokenFileVersion;
  header.token_bytes = static_cast<std::uint32_t>(token_bytes(vocabulary_size));
  header.vocabulary_size = static_cast<std::uint64_t>(vocabulary_size);
  header.count = static_cast<std::uint64_t>(count);
  tokenizer.copy(header.tokenizer, tokenizer.size());
  if (end_of_document) std::memcpy(header.tokenizer + kNameBeforeEnd, &*end_of_document, sizeof(std::uint32_t));
  header.hash = hash_of(header);
  return header;
}

std::vector<std::byte> token_bytes_of(const std::string& path, std::span<const std::uint32_t> tokens,
                                      std::int64_t vocabulary_size, std::int64_t at) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    KEEL_CHECK(tokens[i] < vocabulary_size, "token ", tokens[i], " at position ", at + static_cast<std::int64_t>(i),
               " of '", path, "' is outside the vocabulary of ", vocabulary_size, " tokens");
  const auto wide = std::as_bytes(tokens);
  if (token_bytes(vocabulary_size) == 4) return {wide.begin(), wide.end()};
  std::vector<std::byte> bytes(tokens.size() * sizeof(std::uint16_t));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto narrow = static_cast<std::uint16_t>(tokens[i]);
    std::memcpy(bytes.data() + i * sizeof narrow, &narrow, sizeof narrow);
  }
  return bytes;
}

}  // namespace keel
