#include "keel/tokenizers/count_words.h"

#include <algorithm>
#include <limits>

#include "keel/runtime/error.h"

namespace keel {

void WordCounts::add(std::string_view text, std::uint64_t hash, std::uint64_t count) {
  if (2 * words_.size() >= slots_.size()) grow();
  const std::size_t last = slots_.size() - 1;
  std::size_t at = hash & last;
  for (; slots_[at] != 0; at = (at + 1) & last) {
    Word& word = words_[slots_[at] - 1];
    if (word.hash != hash || this->text(word) != text) continue;
    word.count += count;
    return;
  }
  words_.push_back({hash, count, bytes_.size(), static_cast<std::uint32_t>(text.size())});
  bytes_ += text;
  slots_[at] = static_cast<std::uint32_t>(words_.size());
}

void WordCounts::grow() {
  KEEL_CHECK(words_.size() < std::numeric_limits<std::uint32_t>::max() / 2, "more than 2^31 different words");
  slots_.assign(std::max<std::size_t>(1024, 2 * slots_.size()), 0);
  const std::size_t last = slots_.size() - 1;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    std::size_t at = words_[i].hash & last;
    while (slots_[at] != 0) at = (at + 1) & last;
    slots_[at] = static_cast<std::uint32_t>(i + 1);
  }
}

}  // namespace keel
