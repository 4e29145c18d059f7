#include "keel/tokenizers/json_place.h"

#include <algorithm>

#include "keel/runtime/printable.h"
#include "keel/runtime/utf8.h"

namespace keel {
namespace {

constexpr std::size_t kShownBytes = 60;

std::string joined_words(const std::vector<std::string_view>& words) {
  std::string text;
  for (const std::string_view word : words) {
    if (!text.empty()) text += ", ";
    text += word;
  }
  return text;
}

std::string shown(const Json& value) {
  std::string text = value.dump(-1, BadUtf8::replace);
  if (text.size() <= kShownBytes) return text;
  std::size_t end = kShownBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

}  // namespace

void JsonPlace::fail(std::string_view message, ErrorKind kind) const {
  throw PlacedError(concat(file_, ": ", path_, path_.empty() ? "" : ": ", message), kind);
}

void JsonPlace::fail_kind(std::string_view kind) const { fail(concat(shown(*value_), " must be ", kind)); }

bool JsonPlace::boolean() const {
  if (!value_->is_boolean()) fail_kind("true or false");
  return value_->boolean();
}

std::int64_t JsonPlace::integer(std::int64_t least, std::int64_t most) const {
  if (!value_->is_integer() || value_->integer() < least || value_->integer() > most)
    fail_kind(concat("a whole number from ", least, " to ", most));
  return value_->integer();
}

double JsonPlace::number() const {
  if (!value_->is_number()) fail_kind("a number");
  return value_->number();
}

const std::string& JsonPlace::text() const {
  if (!value_->is_string()) fail_kind("a string");
  return value_->string();
}

char32_t JsonPlace::character() const {
  const CodePoint character =
      value_->is_string() && !value_->string().empty() ? decode_utf8(value_->string(), 0) : CodePoint();
  if (character.bytes == 0 || character.bytes != value_->string().size()) fail_kind("a string of one character");
  return character.value;
}

std::vector<JsonPlace> JsonPlace::items() const {
  if (!value_->is_array()) fail_kind("an array");
  std::vector<JsonPlace> places;
  for (const Json& item : value_->items()) places.emplace_back(item, file_, concat(path_, "[", places.size(), "]"));
  return places;
}

std::vector<std::pair<std::string_view, JsonPlace>> JsonPlace::members() const {
  if (!value_->is_object()) fail_kind("an object");
  std::vector<std::pair<std::string_view, JsonPlace>> places;
  for (const auto& [name, member] : value_->members()) places.emplace_back(name, of(name, member));
  return places;
}

JsonPlace JsonPlace::at(std::string_view name) const {
  if (!value_->is_object()) fail_kind("an object");
  const Json* const member = value_->find(name);
  if (member == nullptr) fail(concat("has no ", name));
  return of(name, *member);
}

JsonPlace JsonPlace::of(std::string_view name, const Json& value) const {
  return {value, file_, concat(path_, path_.empty() ? "" : ".", printable(name))};
}

void JsonPlace::allow(const std::vector<std::string_view>& names) const {
  for (const auto& [name, place] : members())
    if (std::find(names.begin(), names.end(), name) == names.end())
      place.fail(concat("is not known here; known are ", joined_words(names)), ErrorKind::unsupported);
}

void JsonPlace::fail_choice(const std::vector<std::string_view>& words) const {
  fail(concat(shown(*value_), " is not supported; supported are ", joined_words(words)), ErrorKind::unsupported);
}

}  // namespace keel
