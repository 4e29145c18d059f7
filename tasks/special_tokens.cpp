#include "keel/tasks/special_tokens.h"

#include <algorithm>
#include <span>

#include "keel/runtime/error.h"

namespace keel {
namespace {

// Of a text that has a token of its own; none: this one has not, or cannot be expressed.
std::optional<TextTemplate> template_around(const Tokenizer& tokenizer, std::string_view text) {
  Encoding encoded;
  try {
    encoded = tokenizer.encode({text, std::nullopt}, uncut(/*specials=*/true));
  } catch (const Error&) { return std::nullopt; }
  const auto own = std::ranges::find(encoded.special, std::uint8_t{0});
  if (own == encoded.special.end()) return std::nullopt;
  TextTemplate found;
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    if (encoded.special[i] == 0) continue;
    auto& side = static_cast<std::ptrdiff_t>(i) < own - encoded.special.begin() ? found.before : found.behind;
    side.push_back(static_cast<std::int32_t>(encoded.ids[i]));
  }
  return found;
}

}  // namespace

TextTemplate template_of(const Tokenizer& tokenizer) {
  constexpr std::uint32_t kTried = 4096;
  for (std::uint32_t token = 0; token < std::min<std::uint64_t>(kTried, tokenizer.vocabulary_size()); ++token) {
    const std::optional<std::string> text = tokenizer.token_text(token);
    if (!text || text->empty()) continue;
    if (auto found = template_around(tokenizer, *text)) return *found;
  }
  return {};
}

EncodeOptions uncut(bool specials) {
  return {.specials = specials, .truncation = Truncation{.length = std::int64_t{1} << 40}};
}

std::vector<bool> special_tokens(const Tokenizer& tokenizer) {
  std::vector<bool> special(static_cast<std::size_t>(tokenizer.vocabulary_size()));
  for (std::uint32_t token = 0; token < special.size(); ++token) {
    if (!tokenizer.token_text(token)) continue;
    const std::span one(&token, 1);
    special[token] = tokenizer.decode(one, /*skip_specials=*/true).empty() && !tokenizer.decode(one).empty();
  }
  return special;
}

std::optional<std::int32_t> first_token_of(const Tokenizer& tokenizer, std::initializer_list<std::string_view> texts) {
  for (const std::string_view text : texts)
    if (const auto token = tokenizer.token_of(text)) return static_cast<std::int32_t>(*token);
  return std::nullopt;
}

}  // namespace keel
