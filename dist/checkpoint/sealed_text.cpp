#include "keel/dist/checkpoint/sealed_text.h"

#include <fmt/core.h>

#include <charconv>
#include <optional>
#include <span>
#include <system_error>

#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::size_t kDigits = 32;
constexpr std::string_view kEnd = "\n}\n", kBefore = "\n  \"xxh3\": \"", kBehind = "\"\n}\n";

// Where the hash's digits are in a sealed text; nothing in another one.
std::optional<std::size_t> place_of_seal(std::string_view text) {
  if (text.size() < kBefore.size() + kDigits + kBehind.size() || !text.ends_with(kBehind)) return std::nullopt;
  const std::size_t place = text.size() - kBehind.size() - kDigits;
  return text.substr(0, place).ends_with(kBefore) ? std::optional(place) : std::nullopt;
}

// Taken with zeros in the hash's place.
std::string seal_of(std::string text, std::size_t place) {
  return text_of(xxh3(std::as_bytes(std::span(text.replace(place, kDigits, kDigits, '0')))));
}

}  // namespace

std::string with_seal(std::string text) {
  KEEL_CHECK(text.ends_with(kEnd), "only the text of an object can be sealed");
  text.resize(text.size() - kEnd.size());
  text += concat(",", kBefore, std::string(kDigits, '0'), kBehind);
  const std::size_t place = place_of_seal(text).value();
  return text.replace(place, kDigits, seal_of(text, place));
}

bool check_seal(std::string_view text, const std::string& file) {
  const std::optional<std::size_t> place = place_of_seal(text);
  if (!place) return false;
  KEEL_CHECK(seal_of(std::string(text), *place) == text.substr(*place, kDigits), "'", file,
             "' has changed since it was written (its hash differs)");
  return true;
}

std::string text_of(const Hash128& hash) { return fmt::format("{:016x}{:016x}", hash.high, hash.low); }

Hash128 parse_hash(std::string_view digits) {
  const auto half = [&](std::size_t begin) {
    std::uint64_t value = 0;
    const char* end = digits.data() + begin + kDigits / 2;
    const auto [read, error] = std::from_chars(digits.data() + begin, end, value, 16);
    KEEL_CHECK(error == std::errc() && read == end, "'", digits, "' is no hash");
    return value;
  };
  KEEL_CHECK(digits.size() == kDigits, "'", digits, "' is no hash");
  return {.low = half(kDigits / 2), .high = half(0)};
}

}  // namespace keel
