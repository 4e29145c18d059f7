#include "keel/tokenizers/encoding.h"

#include <algorithm>
#include <utility>

#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

template <class T>
void append_range(std::vector<T>& to, const std::vector<T>& from, std::size_t begin, std::size_t end) {
  to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(begin),
            from.begin() + static_cast<std::ptrdiff_t>(end));
}

void append_tokens(Encoding& to, const Encoding& from, std::size_t begin, std::size_t end) {
  append_range(to.ids, from.ids, begin, end);
  append_range(to.type_ids, from.type_ids, begin, end);
  append_range(to.offsets, from.offsets, begin, end);
  append_range(to.word_ids, from.word_ids, begin, end);
  append_range(to.sequence_ids, from.sequence_ids, begin, end);
  append_range(to.special, from.special, begin, end);
  append_range(to.attention, from.attention, begin, end);
  append_range(to.spaces, from.spaces, begin, end);
}

// Cuts to `length` tokens; what is left over becomes windows that share `stride` tokens with the one before.
void cut_to(Encoding& encoding, std::size_t length, std::size_t stride, Side side) {
  const std::size_t size = encoding.size();
  if (length >= size) return;
  if (length == 0) {
    Encoding nothing;
    nothing.overflow.push_back(std::exchange(encoding, Encoding()));
    encoding = std::move(nothing);
    return;
  }
  KEEL_CHECK(stride < length, "a stride of ", stride, " tokens leaves nothing new in windows of ", length,
             ": choose a stride below ", length, ", or a larger length");
  const std::size_t step = length - stride;
  Encoding first;
  std::vector<Encoding> windows;
  for (std::size_t at = 0;; at += step) {
    const std::size_t taken = std::min(length, size - at);
    Encoding window =
        side == Side::right ? encoding.slice(at, at + taken) : encoding.slice(size - at - taken, size - at);
    if (at == 0) first = std::move(window);
    else windows.push_back(std::move(window));
    if (at + taken == size) break;
  }
  encoding = std::move(first);
  encoding.overflow = std::move(windows);
}

// How long two texts may stay that lose tokens of the longer one first.
std::pair<std::size_t, std::size_t> longest_first(std::size_t first, std::size_t second, std::size_t together) {
  std::size_t shorter = std::min(first, second);
  std::size_t longer = shorter > together ? shorter : std::max(shorter, together - shorter);
  if (shorter + longer > together) {
    shorter = together / 2;
    longer = shorter + together % 2;
  }
  return first > second ? std::pair(longer, shorter) : std::pair(shorter, longer);
}

void pad_to(Encoding& encoding, std::size_t length, const Padding& padding) {
  for (Encoding& window : encoding.overflow) pad_to(window, length, padding);
  if (encoding.size() >= length) return;
  const std::size_t missing = length - encoding.size();
  const auto fill = [&](auto& values, auto value) {
    values.insert(padding.side == Side::right ? values.end() : values.begin(), missing, value);
  };
  fill(encoding.ids, padding.id);
  fill(encoding.type_ids, padding.type_id);
  fill(encoding.offsets, TextSpan());
  fill(encoding.word_ids, Encoding::kNoWord);
  fill(encoding.sequence_ids, Encoding::kNoSequence);
  fill(encoding.special, std::uint8_t{1});
  fill(encoding.attention, std::uint8_t{0});
  fill(encoding.spaces, TokenSpaces());
}

}  // namespace

void Encoding::add(std::uint32_t id, std::uint32_t type_id, TextSpan offset, std::int32_t word, std::int32_t sequence,
                   TokenSpaces at_ends) {
  ids.push_back(id);
  type_ids.push_back(type_id);
  offsets.push_back(offset);
  word_ids.push_back(word);
  sequence_ids.push_back(sequence);
  special.push_back(0);
  attention.push_back(1);
  spaces.push_back(at_ends);
}

void Encoding::add_special(std::uint32_t id, std::uint32_t type_id) {
  add(id, type_id, {}, kNoWord, kNoSequence);
  special.back() = 1;
}

void Encoding::append(const Encoding& other) { append_tokens(*this, other, 0, other.size()); }

Encoding Encoding::slice(std::size_t begin, std::size_t end) const {
  Encoding part;
  part.reserve(end - begin);
  append_tokens(part, *this, begin, end);
  return part;
}

void Encoding::reserve(std::size_t tokens) {
  ids.reserve(tokens);
  type_ids.reserve(tokens);
  offsets.reserve(tokens);
  word_ids.reserve(tokens);
  sequence_ids.reserve(tokens);
  special.reserve(tokens);
  attention.reserve(tokens);
  spaces.reserve(tokens);
}

std::vector<TextSpan> character_offsets(std::string_view text, const std::vector<TextSpan>& offsets) {
  // Offsets mostly ascend: the count goes on from the last one, forwards or backwards.
  std::size_t byte = 0;
  std::uint32_t character = 0;
  const auto count_to = [&](std::size_t target) {
    target = std::min(target, text.size());
    for (; byte < target; ++byte) character += begins_character(text[byte]) ? 1 : 0;
    for (; byte > target; --byte) character -= begins_character(text[byte - 1]) ? 1 : 0;
    return character;
  };
  std::vector<TextSpan> counted;
  counted.reserve(offsets.size());
  for (const TextSpan& offset : offsets) {
    const bool inside = offset.begin < text.size() && !begins_character(text[offset.begin]);
    const std::uint32_t begin = count_to(offset.begin) - (inside ? 1 : 0);
    counted.push_back({begin, count_to(offset.end)});
  }
  return counted;
}

void truncate(Encoding& first, Encoding* second, std::int64_t specials, const Truncation& truncation) {
  KEEL_CHECK(truncation.length >= 0 && truncation.stride >= 0, "a text is truncated to a length of ", truncation.length,
             " with a stride of ", truncation.stride, ": both must be 0 or more");
  KEEL_CHECK(truncation.length >= specials, "a length of ", truncation.length, " has no room for ", specials,
             " special tokens");
  const auto length = static_cast<std::size_t>(truncation.length - specials);
  const auto stride = static_cast<std::size_t>(truncation.stride);
  const std::size_t total = first.size() + (second != nullptr ? second->size() : 0);
  if (total <= length) return;
  if (length == 0) {
    cut_to(first, 0, stride, truncation.side);
    if (second != nullptr) cut_to(*second, 0, stride, truncation.side);
    return;
  }
  if (truncation.strategy == Truncation::Strategy::longest_first) {
    const auto [kept, kept_second] =
        second != nullptr ? longest_first(first.size(), second->size(), length) : std::pair(length, std::size_t{0});
    cut_to(first, kept, stride, truncation.side);
    if (second != nullptr) cut_to(*second, kept_second, stride, truncation.side);
    return;
  }
  const bool of_first = truncation.strategy == Truncation::Strategy::only_first;
  KEEL_CHECK(of_first || second != nullptr,
             "only the second text is to be truncated, and there is none: use "
             "longest_first or only_first for single texts");
  Encoding& cut = of_first ? first : *second;
  KEEL_CHECK(cut.size() > total - length, "the ", of_first ? "first" : "second", " text has ", cut.size(),
             " tokens, and ", total - length, " are too many: it alone cannot be truncated to a length of ",
             truncation.length, " with ", specials, " special tokens; use longest_first, or a larger length");
  cut_to(cut, cut.size() - (total - length), stride, truncation.side);
}

void pad(std::vector<Encoding>& encodings, const Padding& padding) {
  KEEL_CHECK(padding.length >= 0 && padding.multiple_of >= 0, "texts are padded to a length of ", padding.length,
             " and a multiple of ", padding.multiple_of, ": both must be 0 or more");
  std::size_t length = 0;
  if (padding.to == Padding::To::length) length = static_cast<std::size_t>(padding.length);
  else
    for (const Encoding& encoding : encodings) length = std::max(length, encoding.size());
  const auto multiple = static_cast<std::size_t>(padding.multiple_of);
  if (multiple > 0) length = (length + multiple - 1) / multiple * multiple;
  for (Encoding& encoding : encodings) pad_to(encoding, length, padding);
}

}  // namespace keel
