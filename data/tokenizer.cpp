#include "keel/data/tokenizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "keel/runtime/utf8.h"

namespace keel {
namespace {

constexpr std::string_view kFormat = "keel tokenizer";
constexpr int kFormatVersion = 1;

void describe(Json& object, const Tokenizer& tokenizer) {
  object["format"] = kFormat;
  object["type"] = tokenizer.name();
  object["version"] = kFormatVersion;
}

// "line 3, column 7": both from 1, columns in characters.
std::string place_of(std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::string_view in_line = newline == std::string_view::npos ? before : before.substr(newline + 1);
  const auto column = 1 + std::count_if(in_line.begin(), in_line.end(),
                                        [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; });
  return concat("line ", line, ", column ", column);
}

// Calls f(character, byte offset) for each character.
template <class F>
void for_each_character(std::string_view text, F&& f) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint character = decode_utf8(text, at);
    KEEL_CHECK(character.bytes != 0, "byte ", at, " of the text (", place_of(text, at),
               ") is not valid UTF-8; convert the text, or use the byte tokenizer");
    f(character.value, at);
    at += character.bytes;
  }
}

std::string quoted(char32_t character) {
  std::string text;
  append_utf8(text, character);
  return concat(Json(text).dump(), " (U+", std::uppercase, std::hex, static_cast<std::uint32_t>(character), ")");
}

void check_token(std::uint32_t token, std::size_t position, std::int64_t vocabulary_size) {
  KEEL_CHECK(token < vocabulary_size, "token ", token, " at position ", position, " is outside the vocabulary of ",
             vocabulary_size, " tokens");
}

std::shared_ptr<const Tokenizer> character_from_json(const Json& object) {
  std::u32string characters;
  for (const Json& item : object.at("characters").items()) {
    const std::string& text = item.string();
    const CodePoint character = text.empty() ? CodePoint{} : decode_utf8(text, 0);
    KEEL_CHECK(character.bytes != 0 && character.bytes == text.size(), "\"", text, "\" is not one character");
    characters += character.value;
  }
  return std::make_shared<CharacterTokenizer>(std::move(characters));
}

struct TokenizerRow {
  std::string_view name;
  std::shared_ptr<const Tokenizer> (*of_text)(std::string_view text);
  std::shared_ptr<const Tokenizer> (*from_json)(const Json& object);
};
// A new tokenizer is a class and a row here.
constexpr std::array<TokenizerRow, 2> kTokenizers = {{
    {"byte", [](std::string_view) -> std::shared_ptr<const Tokenizer> { return std::make_shared<ByteTokenizer>(); },
     [](const Json&) -> std::shared_ptr<const Tokenizer> { return std::make_shared<ByteTokenizer>(); }},
    {"character",
     [](std::string_view text) -> std::shared_ptr<const Tokenizer> {
       return std::make_shared<CharacterTokenizer>(CharacterTokenizer::of_text(text));
     },
     character_from_json},
}};

const TokenizerRow& row_named(std::string_view name) {
  for (const TokenizerRow& row : kTokenizers)
    if (row.name == name) return row;
  std::string known;
  for (const TokenizerRow& row : kTokenizers) known += concat(known.empty() ? "" : ", ", row.name);
  throw Error(concat("unknown tokenizer '", name, "'; known are ", known));
}

}  // namespace

std::vector<std::uint32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<std::uint32_t> tokens(text.size());
  std::transform(text.begin(), text.end(), tokens.begin(), [](char byte) { return static_cast<unsigned char>(byte); });
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const std::uint32_t> tokens) const {
  std::string text(tokens.size(), '\0');
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    check_token(tokens[i], i, vocabulary_size());
    text[i] = static_cast<char>(tokens[i]);
  }
  return text;
}

std::string ByteTokenizer::to_json() const {
  Json object;
  describe(object, *this);
  return object.dump(1) + "\n";
}

CharacterTokenizer CharacterTokenizer::of_text(std::string_view text) {
  std::vector<bool> seen(0x110000);
  for_each_character(text, [&](char32_t character, std::size_t) { seen[character] = true; });
  std::u32string characters;
  for (char32_t character = 0; character < seen.size(); ++character)
    if (seen[character]) characters += character;
  return CharacterTokenizer(std::move(characters));
}

CharacterTokenizer::CharacterTokenizer(std::u32string characters) : characters_(std::move(characters)) {
  KEEL_CHECK(!characters_.empty(), "a character tokenizer needs at least one character; the text is empty");
  const auto twice = std::adjacent_find(characters_.begin(), characters_.end(), std::greater_equal<>());
  KEEL_CHECK(twice == characters_.end(), "the characters of a tokenizer must ascend; ", quoted(*twice), " and ",
             quoted(twice[1]), " do not");
  ascii_.fill(kUnknown);
  for (std::size_t i = 0; i < characters_.size() && characters_[i] < ascii_.size(); ++i)
    ascii_[characters_[i]] = static_cast<std::uint32_t>(i);
}

std::uint32_t CharacterTokenizer::token_of(char32_t character) const {
  if (character < ascii_.size()) return ascii_[character];
  const auto found = std::lower_bound(characters_.begin(), characters_.end(), character);
  if (found == characters_.end() || *found != character) return kUnknown;
  return static_cast<std::uint32_t>(found - characters_.begin());
}

std::vector<std::uint32_t> CharacterTokenizer::encode(std::string_view text) const {
  std::vector<std::uint32_t> tokens;
  tokens.reserve(text.size());
  for_each_character(text, [&](char32_t character, std::size_t at) {
    const std::uint32_t token = token_of(character);
    KEEL_CHECK(token != kUnknown, "the character ", quoted(character), " at ", place_of(text, at), " is not among the ",
               characters_.size(), " characters of the training text");
    tokens.push_back(token);
  });
  return tokens;
}

std::string CharacterTokenizer::decode(std::span<const std::uint32_t> tokens) const {
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    check_token(tokens[i], i, vocabulary_size());
    append_utf8(text, characters_[tokens[i]]);
  }
  return text;
}

std::string CharacterTokenizer::to_json() const {
  Json object, list = Json::array();
  for (const char32_t character : characters_) {
    std::string text;
    append_utf8(text, character);
    list.push_back(std::move(text));
  }
  object["characters"] = std::move(list);
  describe(object, *this);
  return object.dump(1) + "\n";
}

std::vector<std::string_view> tokenizer_names() {
  std::vector<std::string_view> names;
  for (const TokenizerRow& row : kTokenizers) names.push_back(row.name);
  return names;
}

std::shared_ptr<const Tokenizer> make_tokenizer(std::string_view name, std::string_view text) {
  return row_named(name).of_text(text);
}

std::shared_ptr<const Tokenizer> parse_tokenizer(std::string_view text) {
  try {
    const Json object = Json::parse(text);
    const Json* const format = object.find("format");
    KEEL_CHECK(format != nullptr && format->string() == kFormat, "it has no \"format\": \"", kFormat, "\"");
    const Json& version = object.at("version");
    KEEL_CHECK(version.is_integer() && version.integer() == kFormatVersion, "its version is ", version.dump(),
               "; this program reads version ", kFormatVersion);
    return row_named(object.at("type").string()).from_json(object);
  } catch (const JsonError& error) { throw Error(concat("it is not the JSON of a tokenizer: ", error.what())); }
}

void save_tokenizer(const std::string& path, const Tokenizer& tokenizer) { write_text_file(path, tokenizer.to_json()); }

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path) {
  const std::string text = read_text_file(path);
  try {
    return parse_tokenizer(text);
  } catch (const Error& error) { throw Error(concat("'", path, "' is not a tokenizer: ", error.what()), error.kind()); }
}

}  // namespace keel
