#pragma once
// Many texts, of which the longest that begins at a place is found.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

// A trie by bytes.
class TextTrie {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  // Of equal texts the first counts; empty ones do not.
  explicit TextTrie(const std::vector<std::string>& texts);

  bool empty() const { return edges_.empty(); }
  // The first place from `from` on where a text may begin; the end where there is none.
  std::size_t next_begin(std::string_view text, std::size_t from) const {
    if (only_begin_ >= 0) {
      const void* at = from < text.size() ? std::memchr(text.data() + from, only_begin_, text.size() - from) : nullptr;
      return at != nullptr ? static_cast<std::size_t>(static_cast<const char*>(at) - text.data()) : text.size();
    }
    while (from < text.size() && !begins_[static_cast<unsigned char>(text[from])]) ++from;
    return from;
  }
  // The longest text at `at`, by its number, and its bytes.
  std::pair<std::uint32_t, std::size_t> longest(std::string_view text, std::size_t at) const {
    std::pair<std::uint32_t, std::size_t> found = {kNone, 0};
    std::uint32_t node = 0;
    for (std::size_t i = at; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) break;
      if (nodes_[node].text != kNone) found = {nodes_[node].text, i + 1 - at};
    }
    return found;
  }

 private:
  struct Node {
    std::uint32_t first_edge = 0, edges = 0;
    std::uint32_t text = kNone;  // that ends here
  };
  struct Edge {
    unsigned char byte = 0;
    std::uint32_t node = 0;
  };

  void build(const std::vector<std::string>& texts, const std::vector<std::uint32_t>& order);
  // 0, which is no child, where there is none.
  std::uint32_t child(std::uint32_t node, unsigned char byte) const {
    const Edge* const first = edges_.data() + nodes_[node].first_edge;
    const Edge* const end = first + nodes_[node].edges;
    const Edge* const edge =
        std::lower_bound(first, end, byte, [](const Edge& e, unsigned char b) { return e.byte < b; });
    return edge != end && edge->byte == byte ? edge->node : 0;
  }

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::array<bool, 256> begins_{};
  int only_begin_ = -1;  // of all texts, if there is one
};

}  // namespace keel
