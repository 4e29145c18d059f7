#pragma once
// Tokenizers without a vocabulary to learn: bytes and characters.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tokenizers/tokenizer.h"

namespace keel {

// What both have in common: each unit of a text is a token, there are no special tokens, and a text can be cut between
// any two units.
class PlainTokenizer : public Tokenizer {
 public:
  using Tokenizer::encode;
  Encoding encode(const TextPair& text, const EncodeOptions& options) const final;
  std::size_t last_border(std::string_view text) const final;
  // A text that is no single unit, or one without a token, has none.
  std::optional<std::uint32_t> token_of(std::string_view text) const final;
  std::optional<std::string> token_text(std::uint32_t token) const final;

 private:
  // Bytes of the unit that begins at `at`; 0: there is no valid one.
  virtual std::size_t unit_bytes(std::string_view text, std::size_t at) const = 0;
};

// Every byte is a token; any text, whatever its encoding, has an exact representation.
class ByteTokenizer final : public PlainTokenizer {
 public:
  using PlainTokenizer::encode;
  std::string_view name() const override { return "byte"; }
  std::int64_t vocabulary_size() const override { return 256; }
  std::vector<std::uint32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::uint32_t> tokens, bool skip_specials = false) const override;
  std::string to_json() const override;

 private:
  std::size_t unit_bytes(std::string_view text, std::size_t at) const override;
};

// The different characters (Unicode code points) of a text, in ascending order, are the tokens.
class CharacterTokenizer final : public PlainTokenizer {
 public:
  using PlainTokenizer::encode;
  // Invalid UTF-8 is an Error that names the byte; so is an empty text.
  static CharacterTokenizer of_text(std::string_view text);
  // Ascending and different.
  explicit CharacterTokenizer(std::u32string characters);

  std::string_view name() const override { return "character"; }
  std::int64_t vocabulary_size() const override { return static_cast<std::int64_t>(characters_.size()); }
  // An unknown character is an Error that names it, its line and its column.
  std::vector<std::uint32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::uint32_t> tokens, bool skip_specials = false) const override;
  std::string to_json() const override;

 private:
  static constexpr std::uint32_t kUnknown = ~std::uint32_t{0};
  std::uint32_t token_of_character(char32_t character) const;
  std::size_t unit_bytes(std::string_view text, std::size_t at) const override;

  std::u32string characters_;
  std::array<std::uint32_t, 128> ascii_;  // tokens of the first 128 code points
};

// The kinds that make_plain_tokenizer() knows: "byte", "character".
std::vector<std::string_view> plain_tokenizer_names();
bool is_plain_tokenizer(std::string_view name);
// A tokenizer of the named kind for this text. An unknown name is an Error that lists the known ones.
TokenizerPtr make_plain_tokenizer(std::string_view name, std::string_view text);

// Of to_json(). A malformed one is an Error.
TokenizerPtr parse_plain_tokenizer(std::string_view json);

}  // namespace keel
