#include "keel/tokenizers/merge_counts.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "keel/tokenizers/text_hash.h"

namespace keel {
namespace {

constexpr std::uint64_t pair_of(std::uint32_t first, std::uint32_t second) {
  return std::uint64_t{first} << 32 | second;
}

}  // namespace

std::size_t PairCounts::place_of(std::uint64_t pair) const {
  const std::size_t last = slots_.size() - 1;
  std::size_t at = mixed_product(pair, 0x9e3779b97f4a7c15) & last;
  while (slots_[at].pair != pair && slots_[at].pair != kFree) at = (at + 1) & last;
  return at;
}

std::int64_t& PairCounts::operator[](std::uint64_t pair) {
  if (2 * used_ >= slots_.size()) {
    const std::vector<Slot> old =
        std::exchange(slots_, std::vector<Slot>(std::max<std::size_t>(64, 2 * slots_.size())));
    for (const Slot& slot : old)
      if (slot.pair != kFree) slots_[place_of(slot.pair)] = slot;
  }
  Slot& slot = slots_[place_of(pair)];
  if (slot.pair == kFree) {
    slot.pair = pair;
    ++used_;
  }
  return slot.count;
}

void MergeCounts::Side::resize(std::size_t tokens) {
  old_count.resize(tokens);
  new_count.resize(tokens);
  words.resize(tokens);
  is_noted.resize(tokens);
}

void MergeCounts::Side::note(std::uint32_t neighbour) {
  if (is_noted[neighbour]) return;
  is_noted[neighbour] = true;
  changed.push_back(neighbour);
}

void MergeCounts::add_word(std::span<const std::uint32_t> tokens, std::uint64_t count) {
  words_.push_back({symbols_.size(), static_cast<std::uint32_t>(tokens.size()), static_cast<std::int64_t>(count)});
  symbols_.insert(symbols_.end(), tokens.begin(), tokens.end());
}

void MergeCounts::begin(std::vector<std::int64_t> lengths) {
  lengths_ = std::move(lengths);
  PairCounts lists;  // of each pair: one more than its number
  std::vector<std::uint64_t> pairs;
  std::vector<std::vector<std::uint32_t>> words;
  for (std::uint32_t word = 0; word < words_.size(); ++word) {
    const Word& of = words_[word];
    for (std::uint64_t i = of.begin; i + 1 < of.begin + of.size; ++i) {
      const std::uint64_t pair = pair_of(symbols_[i], symbols_[i + 1]);
      counts_[pair] += of.count;
      std::int64_t& list = lists[pair];
      if (list == 0) {
        pairs.push_back(pair);
        words.emplace_back();
        list = static_cast<std::int64_t>(pairs.size());
      }
      auto& found = words[static_cast<std::size_t>(list - 1)];
      if (found.empty() || found.back() != word) found.push_back(word);
    }
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) push(pairs[i], std::move(words[i]));
}

void MergeCounts::push(std::uint64_t pair, std::vector<std::uint32_t> words) {
  const std::int64_t count = counts_[pair];
  if (count <= 0) return;
  if (free_lists_.empty()) {
    free_lists_.push_back(lists_.size());
    lists_.emplace_back();
  }
  const std::size_t list = free_lists_.back();
  free_lists_.pop_back();
  lists_[list] = std::move(words);
  queue_.push({count, pair, list});
}

MergeCounts::Top MergeCounts::top() {
  while (!queue_.empty()) {
    current_ = queue_.top();
    queue_.pop();
    const std::int64_t count = counts_[current_.pair];
    if (count == current_.count)
      return {static_cast<std::uint32_t>(current_.pair >> 32), static_cast<std::uint32_t>(current_.pair), count};
    current_.count = count;
    queue_.push(current_);
  }
  return {};
}

void MergeCounts::add_new(Side& side, std::uint32_t neighbour, std::uint32_t word, std::int64_t count) {
  side.note(neighbour);
  side.new_count[neighbour] += count;
  auto& words = side.words[neighbour];
  if (words.empty() || words.back() != word) words.push_back(word);
}

void MergeCounts::merge_word(std::uint32_t word, std::uint32_t token) {
  Word& of = words_[word];
  const auto first = static_cast<std::uint32_t>(current_.pair >> 32),
             second = static_cast<std::uint32_t>(current_.pair);
  const std::span<std::uint32_t> symbols(symbols_.data() + of.begin, of.size);
  const auto fits = [&](std::uint32_t neighbour) {
    return longest_ == 0 || lengths_[neighbour] + lengths_[token] <= longest_;
  };
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < of.size; ++i) {
    if (symbols[i] != first || i + 1 == of.size || symbols[i + 1] != second) {
      symbols[kept++] = symbols[i];
      continue;
    }
    if (kept > 0) {
      const std::uint32_t before = symbols[kept - 1];
      left_.note(before);
      left_.old_count[before] += of.count;
      if (fits(before)) add_new(left_, before, word, of.count);
    }
    if (i + 2 < of.size) {
      const std::uint32_t behind = symbols[i + 2];
      right_.note(behind);
      right_.old_count[behind] += of.count;
      // Token and token is one pair, from either side.
      if (fits(behind)) add_new(behind == token ? left_ : right_, behind, word, of.count);
    }
    symbols[kept++] = token;
    ++i;
  }
  of.size = kept;
}

void MergeCounts::merge(std::uint32_t token) {
  const auto first = static_cast<std::uint32_t>(current_.pair >> 32),
             second = static_cast<std::uint32_t>(current_.pair);
  if (token >= lengths_.size()) lengths_.resize(token + std::size_t{1});
  lengths_[token] = lengths_[first] + lengths_[second];
  left_.resize(lengths_.size());
  right_.resize(lengths_.size());
  const std::vector<std::uint32_t> words = std::move(lists_[current_.words]);
  free_lists_.push_back(current_.words);
  for (const std::uint32_t word : words) merge_word(word, token);
  for (const std::uint32_t x : left_.changed) {
    counts_[pair_of(x, first)] -= std::exchange(left_.old_count[x], 0);
    counts_[pair_of(x, token)] += std::exchange(left_.new_count[x], 0);
  }
  for (const std::uint32_t x : right_.changed) {
    counts_[pair_of(second, x)] -= std::exchange(right_.old_count[x], 0);
    counts_[pair_of(token, x)] += std::exchange(right_.new_count[x], 0);
  }
  const auto push_all = [&](Side& side, const auto& pair_with) {
    for (const std::uint32_t x : side.changed) {
      side.is_noted[x] = false;
      if (!side.words[x].empty()) push(pair_with(x), std::exchange(side.words[x], {}));
    }
    side.changed.clear();
  };
  push_all(left_, [&](std::uint32_t x) { return pair_of(x, token); });
  push_all(right_, [&](std::uint32_t x) { return pair_of(token, x); });
}

}  // namespace keel
