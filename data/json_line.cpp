#include "keel/data/json_line.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "keel/data/number_text.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/runtime/utf8.h"

namespace keel {
namespace {

constexpr int kDeepest = 64;
constexpr std::size_t kFewFields = 32;  // whose names are compared with each other

constexpr std::uint64_t repeated(unsigned char byte) { return 0x0101010101010101u * byte; }

// Marks the high bit of the first byte of eight that is a quote, a backslash, a control character or no ASCII. Bytes
// behind it may be marked, too.
std::uint64_t special_bytes(std::uint64_t eight) {
  const auto zeros = [](std::uint64_t x) { return (x - repeated(1)) & ~x; };
  const std::uint64_t controls = (eight - repeated(0x20)) & ~eight;
  return (zeros(eight ^ repeated('"')) | zeros(eight ^ repeated('\\')) | controls | eight) & repeated(0x80);
}

// The first byte from `at` on that is no plain character of a string.
std::size_t plain_end(std::string_view text, std::size_t at) {
  static_assert(std::endian::native == std::endian::little);
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, text.data() + at, 8);
    if (const std::uint64_t special = special_bytes(eight))
      return at + static_cast<std::size_t>(std::countr_zero(special)) / 8;
  }
  const auto is_plain = [](char byte) { return byte >= ' ' && byte != '"' && byte != '\\'; };
  while (at < text.size() && is_plain(text[at])) ++at;
  return at;
}

bool is_decimal_digit(char byte) { return static_cast<unsigned char>(byte - '0') < 10; }

}  // namespace

void JsonLineReader::expected(std::string_view what) const {
  const std::string found =
      at_ < text_.size() ? concat("'", printable(text_.substr(at_, 1)), "'") : std::string("the line's end");
  throw JsonFault{at_, concat("expected ", what, ", found ", found)};
}

void JsonLineReader::skip_spaces() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r' || text_[at_] == '\n'))
    ++at_;
}

JsonLineReader::NumberText JsonLineReader::read_number_text() {
  const std::size_t begin = at_;
  const bool negative = peek() == '-';
  if (negative) ++at_;
  if (!is_decimal_digit(peek())) expected(negative ? "a digit after '-'" : "a value");
  const bool leading_zero = peek() == '0';
  std::uint64_t digits = 0;
  const std::size_t first = at_;
  for (; is_decimal_digit(peek()); ++at_) digits = 10 * digits + static_cast<std::uint64_t>(text_[at_] - '0');
  if (leading_zero && at_ - first > 1) {
    at_ = first + 1;
    expected("no digit after a leading 0");
  }
  const std::size_t behind = at_;
  if (peek() == '.') {
    ++at_;
    if (!is_decimal_digit(peek())) expected("a digit after '.'");
    while (is_decimal_digit(peek())) ++at_;
  }
  if (peek() == 'e' || peek() == 'E') {
    ++at_;
    if (peek() == '+' || peek() == '-') ++at_;
    if (!is_decimal_digit(peek())) expected("a digit of an exponent");
    while (is_decimal_digit(peek())) ++at_;
  }
  if (at_ == behind && behind - first <= 18) {
    const auto whole = negative ? -static_cast<std::int64_t>(digits) : static_cast<std::int64_t>(digits);
    return {static_cast<double>(whole), whole, true};
  }
  const std::string_view number = text_.substr(begin, at_ - begin);
  if (at_ == behind) {
    std::int64_t whole = 0;
    if (std::from_chars(number.data(), number.data() + number.size(), whole).ec == std::errc())
      return {static_cast<double>(whole), whole, true};
  }
  const double value = read_number(number).value;
  if (!std::isfinite(value))
    throw JsonFault{begin, concat("expected a number that a double holds, found ", printable(number, 40))};
  return {value, 0, false};
}

std::string_view JsonLineReader::read_string() {
  const std::size_t begin = at_;
  scratch_.clear();
  bool is_copied = false;
  for (std::size_t copied = begin;;) {
    at_ = plain_end(text_, at_);
    if (at_ == text_.size()) expected("'\"' at the end of a text");
    const char byte = text_[at_];
    if (byte == '"') {
      const std::string_view last = text_.substr(copied, at_++ - copied);
      return is_copied ? scratch_.append(last) : last;
    }
    if (byte == '\\') {
      is_copied = true;
      scratch_.append(text_.substr(copied, at_ - copied));
      read_escape();
      copied = at_;
    } else {
      check_character();
    }
  }
}

void JsonLineReader::check_character() {
  if (static_cast<unsigned char>(text_[at_]) < 0x20) expected("'\\n' or '\\u....' for a control character in a text");
  const std::size_t bytes = decode_utf8(text_, at_).bytes;
  if (bytes == 0) expected("UTF-8");
  at_ += bytes;
}

unsigned JsonLineReader::read_hex() {
  unsigned value = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char byte = peek();
    if (is_decimal_digit(byte)) value = 16 * value + static_cast<unsigned>(byte - '0');
    else if ('a' <= (byte | 0x20) && (byte | 0x20) <= 'f')
      value = 16 * value + static_cast<unsigned>((byte | 0x20) - 'a') + 10;
    else expected("four hexadecimal digits");
  }
  return value;
}

void JsonLineReader::read_escape() {
  constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  ++at_;
  if (peek() != 'u') {
    const std::size_t letter = at_ < text_.size() ? kLetters.find(text_[at_]) : std::string_view::npos;
    if (letter == std::string_view::npos) expected("one of \"\\/bfnrtu after a backslash");
    scratch_ += kMeanings[letter];
    ++at_;
    return;
  }
  const std::size_t begin = at_++ - 1;
  char32_t character = read_hex();
  const auto is_second = [](unsigned half) { return 0xdc00 <= half && half <= 0xdfff; };
  if (0xd800 <= character && character <= 0xdbff && text_.substr(at_).starts_with("\\u")) {
    at_ += 2;
    const unsigned second = read_hex();
    if (!is_second(second)) throw JsonFault{begin, "expected the second half of a surrogate pair after the first"};
    character = 0x10000 + ((character - 0xd800) << 10) + (second - 0xdc00);
  } else if (0xd800 <= character && character <= 0xdfff) {
    throw JsonFault{begin, "expected a character, found half of a surrogate pair"};
  }
  append_utf8(scratch_, character);
}

void JsonLineReader::read_word(std::string_view word) {
  if (!text_.substr(at_).starts_with(word)) expected("a value");
  at_ += word.size();
}

std::int64_t JsonLineReader::read_plain_numbers() {
  const char* at = text_.data() + at_;
  const char* const end = text_.data() + text_.size();
  std::int64_t count = 0;
  while (end - at >= 12) {
    const bool is_negative = *at == '-';
    const char* const first = at + (is_negative ? 1 : 0);
    const auto [digits, length] = read_eight_digits(first);
    const char* behind = first + length;
    if (length == 0 || length == 8 || *behind != ',' || (*first == '0' && length > 1)) break;
    wholes_.push_back(is_negative ? -static_cast<std::int64_t>(digits) : static_cast<std::int64_t>(digits));
    ++count;
    at = behind + (behind[1] == ' ' ? 2 : 1);
  }
  at_ = static_cast<std::size_t>(at - text_.data());
  return count;
}

bool JsonLineReader::read_numbers(int depth) {
  if (depth >= kMaxRank) return false;
  const bool is_first = shape_.size() == depth;  // of its depth: its extent is the others', too
  if (is_first) shape_.push_back(-1);
  ++at_;
  std::int64_t count = all_whole_ && shape_.size() == depth + 1 ? read_plain_numbers() : 0;
  for (;; ++at_) {
    skip_spaces();
    if (peek() == ']' && count == 0) break;
    if (peek() == '[') {
      if (shape_.size() == depth + 1 && count > 0) return false;  // behind numbers
      if (!read_numbers(depth + 1)) return false;
    } else {
      if (shape_.size() > depth + 1 || (peek() != '-' && !is_decimal_digit(peek()))) return false;
      const NumberText number = read_number_text();
      if (all_whole_ && !number.is_whole) {
        all_whole_ = false;
        numbers_.assign(wholes_.begin(), wholes_.end());
      }
      if (all_whole_) wholes_.push_back(number.whole);
      else numbers_.push_back(static_cast<float>(number.value));
    }
    ++count;
    skip_spaces();
    if (peek() == ']') break;
    if (peek() != ',') return false;
  }
  ++at_;
  if (shape_[depth] == -1) shape_[depth] = count;
  return shape_[depth] == count;
}

Value JsonLineReader::list_value() {
  if (all_whole_) return Integers{shape_, {wholes_.begin(), wholes_.end()}};
  return Numbers{shape_, {numbers_.begin(), numbers_.end()}};
}

std::string_view JsonLineReader::read_name() {
  if (peek() != '"') expected("'\"' of a member's name");
  ++at_;
  const std::string_view name = read_string();
  skip_spaces();
  if (peek() != ':') expected("':' after a member's name");
  ++at_;
  skip_spaces();
  return name;
}

void JsonLineReader::skip_inside(char close, int depth) {
  if (depth > kDeepest) throw JsonFault{at_, concat("expected at most ", kDeepest, " lists and objects in each other")};
  ++at_;
  skip_spaces();
  if (peek() != close) {
    for (;; ++at_, skip_spaces()) {
      if (close == '}') read_name();
      skip_value(depth);
      skip_spaces();
      if (peek() == close) break;
      if (peek() != ',') expected(concat("',' or '", close, "'"));
    }
  }
  ++at_;
}

void JsonLineReader::skip_value(int depth) {
  switch (peek()) {
    case '"':
      ++at_;
      read_string();
      break;
    case '{': skip_inside('}', depth + 1); break;
    case '[': skip_inside(']', depth + 1); break;
    case 't': read_word("true"); break;
    case 'f': read_word("false"); break;
    case 'n': read_word("null"); break;
    default: read_number_text();
  }
}

bool JsonLineReader::read_value(Value& value) {
  const std::size_t begin = at_;
  switch (peek()) {
    case '"': {
      ++at_;
      const std::string_view text = read_string();
      value.emplace<std::string>(text);
      return true;
    }
    case 'n': read_word("null"); return false;
    case 't':
      read_word("true");
      value = std::int64_t{1};
      return true;
    case 'f':
      read_word("false");
      value = std::int64_t{0};
      return true;
    case '[':
      wholes_.clear();
      numbers_.clear();
      all_whole_ = true;
      shape_ = {};
      if (read_numbers(0)) {
        value = list_value();
        return true;
      }
      at_ = begin;
      [[fallthrough]];
    case '{':
      skip_value(1);
      value = Nested{std::string(text_.substr(begin, at_ - begin))};
      return true;
    default: {
      const NumberText number = read_number_text();
      if (number.is_whole) value = number.whole;
      else value = number.value;
      return true;
    }
  }
}

void JsonLineReader::check_new(const std::string& name, std::size_t at, const std::vector<Example::Field>& fields) {
  bool is_twice = false;
  if (fields.size() < kFewFields) {
    is_twice = std::ranges::any_of(fields, [&](const Example::Field& field) { return field.first == name; });
  } else {
    if (fields.size() == kFewFields || names_.empty()) {
      names_.clear();
      for (const Example::Field& field : fields) names_.insert(field.first);
    }
    is_twice = !names_.insert(name).second;
  }
  if (is_twice)
    throw JsonFault{at, concat("expected another name, as the object has '", printable(name, 64), "' already")};
}

Example JsonLineReader::read(std::string_view text) {
  text_ = text;
  at_ = 0;
  names_.clear();
  std::vector<Example::Field> fields;
  fields.reserve(last_count_);
  skip_spaces();
  if (peek() != '{') expected("'{' of an object");
  ++at_;
  skip_spaces();
  if (peek() != '}') {
    for (;; ++at_, skip_spaces()) {
      const std::size_t name_at = at_;
      std::string name(read_name());
      check_new(name, name_at, fields);
      Value value;
      if (read_value(value)) fields.emplace_back(std::move(name), std::move(value));
      skip_spaces();
      if (peek() == '}') break;
      if (peek() != ',') expected("',' or '}' after a member");
    }
  }
  ++at_;
  skip_spaces();
  if (at_ != text_.size()) expected("the line's end after the object");
  last_count_ = fields.size();
  return Example(std::move(fields));
}

}  // namespace keel
