#include "keel/tokenizers/plain_tokenizers.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/runtime/json.h"
#include "keel/runtime/utf8.h"
#include "keel/tokenizers/post_processor.h"

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
void for_each_code_point(std::string_view text, F&& f) {
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

TokenizerPtr character_from_json(const Json& object) {
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
  TokenizerPtr (*of_text)(std::string_view text);
  TokenizerPtr (*from_json)(const Json& object);
};
// A new tokenizer is a class and a row here.
constexpr std::array<TokenizerRow, 2> kTokenizers = {{
    {"byte", [](std::string_view) -> TokenizerPtr { return std::make_shared<ByteTokenizer>(); },
     [](const Json&) -> TokenizerPtr { return std::make_shared<ByteTokenizer>(); }},
    {"character",
     [](std::string_view text) -> TokenizerPtr {
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

Encoding PlainTokenizer::encode(const TextPair& text, const EncodeOptions& options) const {
  const auto units_of = [&](std::string_view one, std::uint32_t type_id) {
    Encoding encoding;
    std::uint32_t at = 0;
    std::int32_t word = 0;
    for (const std::uint32_t id : encode(one)) {
      const auto end = static_cast<std::uint32_t>(at + unit_bytes(one, at));
      encoding.add(id, type_id, {at, end}, word++, static_cast<std::int32_t>(type_id));
      at = end;
    }
    return encoding;
  };
  Encoding first = units_of(text.first, 0), second;
  if (text.second) second = units_of(*text.second, 1);
  Encoding* const pair = text.second ? &second : nullptr;
  if (options.truncation) truncate(first, pair, 0, *options.truncation);
  return post_process(nullptr, text, std::move(first), pair, options.specials);
}

std::size_t PlainTokenizer::last_border(std::string_view text) const {
  for (std::size_t back = 1; back <= std::min<std::size_t>(4, text.size()); ++back)
    if (unit_bytes(text, text.size() - back) == back) return text.size();
    else if (unit_bytes(text, text.size() - back) != 0) break;
  // A unit is cut off at the end, or what stands there is none; encode() says so.
  for (std::size_t back = 1; back <= std::min<std::size_t>(4, text.size()); ++back)
    if ((static_cast<unsigned char>(text[text.size() - back]) & 0xc0) != 0x80) return text.size() - back;
  return text.size();
}

std::optional<std::uint32_t> PlainTokenizer::token_of(std::string_view text) const {
  if (text.empty() || unit_bytes(text, 0) != text.size()) return std::nullopt;
  try {
    return encode(text).front();
  } catch (const Error&) { return std::nullopt; }
}

std::optional<std::string> PlainTokenizer::token_text(std::uint32_t token) const {
  if (token >= vocabulary_size()) return std::nullopt;
  return decode(std::span(&token, 1));
}

std::size_t ByteTokenizer::unit_bytes(std::string_view text, std::size_t at) const { return at < text.size() ? 1 : 0; }

std::size_t CharacterTokenizer::unit_bytes(std::string_view text, std::size_t at) const {
  return at < text.size() ? decode_utf8(text, at).bytes : 0;
}

std::vector<std::uint32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<std::uint32_t> tokens(text.size());
  std::transform(text.begin(), text.end(), tokens.begin(), [](char byte) { return static_cast<unsigned char>(byte); });
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const std::uint32_t> tokens, bool) const {
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
  std::vector<bool> seen;
  for_each_code_point(text, [&](char32_t character, std::size_t) {
    if (character >= seen.size()) seen.resize(character + 1);
    seen[character] = true;
  });
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

std::uint32_t CharacterTokenizer::token_of_character(char32_t character) const {
  if (character < ascii_.size()) return ascii_[character];
  const auto found = std::lower_bound(characters_.begin(), characters_.end(), character);
  if (found == characters_.end() || *found != character) return kUnknown;
  return static_cast<std::uint32_t>(found - characters_.begin());
}

std::vector<std::uint32_t> CharacterTokenizer::encode(std::string_view text) const {
  std::vector<std::uint32_t> tokens;
  tokens.reserve(text.size());
  for_each_code_point(text, [&](char32_t character, std::size_t at) {
    const std::uint32_t token = token_of_character(character);
    KEEL_CHECK(token != kUnknown, "the character ", quoted(character), " at ", place_of(text, at), " is not among the ",
               characters_.size(), " characters of the training text");
    tokens.push_back(token);
  });
  return tokens;
}

std::string CharacterTokenizer::decode(std::span<const std::uint32_t> tokens, bool) const {
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

std::vector<std::string_view> plain_tokenizer_names() {
  std::vector<std::string_view> names;
  for (const TokenizerRow& row : kTokenizers) names.push_back(row.name);
  return names;
}

bool is_plain_tokenizer(std::string_view name) {
  return std::any_of(kTokenizers.begin(), kTokenizers.end(), [&](const TokenizerRow& row) { return row.name == name; });
}

TokenizerPtr make_plain_tokenizer(std::string_view name, std::string_view text) {
  return row_named(name).of_text(text);
}

TokenizerPtr parse_plain_tokenizer(std::string_view text) {
  try {
    const Json object = Json::parse(text);
    const Json* const format = object.find("format");
    KEEL_CHECK(format != nullptr && format->string() == kFormat, "it has no \"format\": \"", kFormat, "\"");
    const Json& version = object.at("version");
    KEEL_CHECK(version.is_integer() && version.integer() == kFormatVersion, "its version is ", version.dump(),
               "; this program reads version ", kFormatVersion);
    return row_named(object.at("type").string()).from_json(object);
  } catch (const JsonError& error) { throw Error("it is not the JSON of a tokenizer: ", error); }
}

}  // namespace keel
