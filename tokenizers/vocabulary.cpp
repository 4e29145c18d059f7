#include "keel/tokenizers/vocabulary.h"

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/tokenizers/text_hash.h"

namespace keel {
namespace {

constexpr std::size_t kMostTokens = std::size_t{1} << 31;

std::uint32_t mark_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

}  // namespace

Vocabulary::Vocabulary(std::vector<std::pair<std::string, std::uint32_t>> tokens) {
  KEEL_CHECK(tokens.size() <= kMostTokens, "vocabulary: ", tokens.size(), " tokens, at most ", kMostTokens,
             " are supported");
  const auto by_number = [](const auto& a, const auto& b) { return a.second < b.second; };
  if (!std::is_sorted(tokens.begin(), tokens.end(), by_number))
    std::stable_sort(tokens.begin(), tokens.end(), by_number);

  std::size_t bytes = 0;
  for (const auto& token : tokens) bytes += token.first.size();
  bytes_.reserve(bytes);
  begins_.reserve(tokens.size() + 1);
  slots_.resize(std::bit_ceil(tokens.size() * 2 + 2));
  if (!tokens.empty() && tokens.back().second + std::size_t{1} != tokens.size()) numbers_.reserve(tokens.size());
  const bool has_holes = numbers_.capacity() > 0;
  begins_.push_back(0);
  for (std::size_t place = 0; place < tokens.size(); ++place) {
    const auto& [text, number] = tokens[place];
    KEEL_CHECK(number < kMostTokens, "vocabulary: \"", text, "\" has the number ", number, ", the largest is ",
               kMostTokens - 1);
    KEEL_CHECK(place == 0 || tokens[place - 1].second != number, "vocabulary: \"", tokens[place - 1].first, "\" and \"",
               text, "\" both have the number ", number);
    const std::uint64_t hash = text_hash(text);
    Slot& slot = slots_[slot_of(text, hash)];
    KEEL_CHECK(slot.place == kNone, "vocabulary: \"", text, "\" has two numbers, ", tokens[slot.place].second, " and ",
               number);
    bytes_ += text;
    begins_.push_back(bytes_.size());
    if (has_holes) numbers_.push_back(number);
    slot = {static_cast<std::uint32_t>(place), mark_of(hash)};
  }
}

std::string_view Vocabulary::text_at(std::size_t place) const {
  return std::string_view(bytes_).substr(begins_[place], begins_[place + 1] - begins_[place]);
}

std::uint32_t Vocabulary::number_at(std::size_t place) const {
  return numbers_.empty() ? static_cast<std::uint32_t>(place) : numbers_[place];
}

std::size_t Vocabulary::slot_of(std::string_view text, std::uint64_t hash) const {
  const std::size_t last = slots_.size() - 1;
  for (std::size_t at = hash & last;; at = (at + 1) & last) {
    const Slot& slot = slots_[at];
    if (slot.place == kNone || (slot.mark == mark_of(hash) && text_at(slot.place) == text)) return at;
  }
}

std::uint32_t Vocabulary::find(std::string_view text) const {
  const Slot& slot = slots_[slot_of(text, text_hash(text))];
  return slot.place == kNone ? kNone : number_at(slot.place);
}

std::optional<std::string_view> Vocabulary::text(std::uint32_t token) const {
  std::size_t place = token;
  if (!numbers_.empty()) {
    const auto found = std::lower_bound(numbers_.begin(), numbers_.end(), token);
    if (found == numbers_.end() || *found != token) return std::nullopt;
    place = static_cast<std::size_t>(found - numbers_.begin());
  }
  if (place >= static_cast<std::size_t>(count())) return std::nullopt;
  return text_at(place);
}

std::int64_t Vocabulary::size() const { return count() == 0 ? 0 : std::int64_t{number_at(begins_.size() - 2)} + 1; }

std::int64_t Vocabulary::count() const { return static_cast<std::int64_t>(begins_.size()) - 1; }

}  // namespace keel
