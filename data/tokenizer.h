#pragma once
// Tokenizers: text to numbers and back.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

// Tokens are the numbers from 0 to vocabulary_size() - 1. Tokenizers do not change once made.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string_view name() const = 0;  // one of tokenizer_names()
  virtual std::int64_t vocabulary_size() const = 0;
  // A text that cannot be expressed is an Error that says where.
  virtual std::vector<std::uint32_t> encode(std::string_view text) const = 0;
  // A token outside the vocabulary is an Error that names its position.
  virtual std::string decode(std::span<const std::uint32_t> tokens) const = 0;
  // A JSON object from which parse_tokenizer() makes this tokenizer again.
  virtual std::string to_json() const = 0;
};

// Every byte is a token; any text, whatever its encoding, has an exact representation.
class ByteTokenizer final : public Tokenizer {
 public:
  std::string_view name() const override { return "byte"; }
  std::int64_t vocabulary_size() const override { return 256; }
  std::vector<std::uint32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::uint32_t> tokens) const override;
  std::string to_json() const override;
};

// The different characters (Unicode code points) of a text, in ascending order, are the tokens.
class CharacterTokenizer final : public Tokenizer {
 public:
  // Invalid UTF-8 is an Error that names the byte; so is an empty text.
  static CharacterTokenizer of_text(std::string_view text);
  // Ascending and different.
  explicit CharacterTokenizer(std::u32string characters);

  std::string_view name() const override { return "character"; }
  std::int64_t vocabulary_size() const override { return static_cast<std::int64_t>(characters_.size()); }
  // An unknown character is an Error that names it, its line and its column.
  std::vector<std::uint32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::uint32_t> tokens) const override;
  std::string to_json() const override;

 private:
  static constexpr std::uint32_t kUnknown = ~std::uint32_t{0};
  std::uint32_t token_of(char32_t character) const;

  std::u32string characters_;
  std::array<std::uint32_t, 128> ascii_;  // tokens of the first 128 code points
};

std::vector<std::string_view> tokenizer_names();
// A tokenizer of the named kind for this text. An unknown name is an Error that lists the known ones.
std::shared_ptr<const Tokenizer> make_tokenizer(std::string_view name, std::string_view text);

// tokenizer.json of a run folder. A malformed file is an Error that names path and reason.
void save_tokenizer(const std::string& path, const Tokenizer& tokenizer);
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path);
std::shared_ptr<const Tokenizer> parse_tokenizer(std::string_view json);

}  // namespace keel
