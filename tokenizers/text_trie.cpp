#include "keel/tokenizers/text_trie.h"

namespace keel {

TextTrie::TextTrie(const std::vector<std::string>& texts) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < texts.size(); ++i)
    if (!texts[i].empty()) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return texts[a] < texts[b]; });
  build(texts, order);
  for (const std::uint32_t i : order) begins_[static_cast<unsigned char>(texts[i].front())] = true;
  if (std::count(begins_.begin(), begins_.end(), true) == 1)
    only_begin_ = static_cast<int>(std::find(begins_.begin(), begins_.end(), true) - begins_.begin());
}

// Level by level, so that a long text costs no stack: each node stands for a range of the sorted texts.
void TextTrie::build(const std::vector<std::string>& texts, const std::vector<std::uint32_t>& order) {
  struct Range {
    std::size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, order.size(), 0}};
  nodes_.emplace_back();
  for (std::size_t node = 0; node < ranges.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    if (begin < end && texts[order[begin]].size() == depth) nodes_[node].text = order[begin];
    while (begin < end && texts[order[begin]].size() == depth) ++begin;
    nodes_[node].first_edge = static_cast<std::uint32_t>(edges_.size());
    while (begin < end) {
      const char byte = texts[order[begin]][depth];
      std::size_t stop = begin;
      while (stop < end && texts[order[stop]][depth] == byte) ++stop;
      edges_.push_back({static_cast<unsigned char>(byte), static_cast<std::uint32_t>(nodes_.size())});
      nodes_.emplace_back();
      ranges.push_back({begin, stop, depth + 1});
      begin = stop;
    }
    nodes_[node].edges = static_cast<std::uint32_t>(edges_.size()) - nodes_[node].first_edge;
  }
}

}  // namespace keel
