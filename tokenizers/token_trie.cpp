#include "keel/tokenizers/token_trie.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::size_t kBytes = 256;
constexpr std::size_t kPlacesTried = 32;  // before new cells are taken at the end

}  // namespace

// Fills the array from sorted texts. Free cells are linked in a ring through the cell 0.
struct TokenTrie::Builder {
  struct Token {
    std::string_view text;
    std::uint32_t number;
  };
  struct Range {
    std::uint32_t node;
    std::size_t begin, end, depth;  // of texts that share `depth` bytes, those of the node
  };
  std::vector<Node>& nodes;
  std::span<const Token> tokens;
  std::vector<std::uint32_t> next{}, previous{};  // of a cell in the ring; one that is taken: itself
  std::uint32_t cursor = 0;                       // where the search for free cells begins

  void add_cells(std::size_t count) {
    KEEL_CHECK(nodes.size() + count < Vocabulary::kNone, "vocabulary: its texts are too long for a table of 4 G cells");
    for (std::size_t i = 0; i < count; ++i) {
      const auto cell = static_cast<std::uint32_t>(nodes.size());
      nodes.emplace_back();
      next.push_back(0);
      previous.push_back(cell == 0 ? 0 : previous[0]);
      if (cell > 0) next[previous[0]] = cell;
      previous[0] = cell;
    }
  }
  void take(std::uint32_t cell, std::uint32_t parent) {
    if (cursor == cell) cursor = next[cell];
    nodes[cell].parent = parent;
    next[previous[cell]] = next[cell];
    previous[next[cell]] = previous[cell];
    next[cell] = previous[cell] = cell;
  }
  bool is_free(std::size_t cell) const { return next[cell] != cell; }

  // A base at which all children have a free cell: of the next free cells, or new ones at the end.
  std::uint32_t base_for(std::span<const unsigned char> bytes) {
    for (std::size_t tries = 0; tries < kPlacesTried; ++tries, cursor = next[cursor]) {
      if (cursor < kBytes + bytes[0]) continue;  // the cells in front are nobody's children
      const std::size_t base = cursor - bytes[0];
      if (base + kBytes > nodes.size()) add_cells(kBytes);
      if (std::all_of(bytes.begin(), bytes.end(), [&](unsigned char byte) { return is_free(base + byte); }))
        return static_cast<std::uint32_t>(base);
    }
    cursor = static_cast<std::uint32_t>(nodes.size());
    add_cells(kBytes);
    return cursor;
  }

  void build() {
    std::vector<Range> open{{kRoot, 0, tokens.size(), 0}};
    std::vector<unsigned char> bytes;
    std::vector<std::size_t> begins;
    while (!open.empty()) {
      const Range range = open.back();
      open.pop_back();
      std::size_t i = range.begin;
      if (i < range.end && tokens[i].text.size() == range.depth) nodes[range.node].token = tokens[i++].number;
      bytes.clear();
      begins.clear();
      for (; i < range.end; ++i) {
        const auto byte = static_cast<unsigned char>(tokens[i].text[range.depth]);
        if (!bytes.empty() && bytes.back() == byte) continue;
        bytes.push_back(byte);
        begins.push_back(i);
      }
      if (bytes.empty()) continue;
      begins.push_back(range.end);
      const std::uint32_t base = base_for(bytes);
      nodes[range.node].base = base;
      for (const unsigned char byte : bytes) take(base + byte, range.node);
      for (std::size_t child = bytes.size(); child-- > 0;)
        open.push_back({base + bytes[child], begins[child], begins[child + 1], range.depth + 1});
    }
  }
};

TokenTrie::TokenTrie(const Vocabulary& vocabulary) {
  std::vector<Builder::Token> tokens;
  tokens.reserve(static_cast<std::size_t>(vocabulary.count()));
  vocabulary.for_each([&](std::string_view text, std::uint32_t token) {
    if (!text.empty()) tokens.push_back({text, token});
  });
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.text < b.text; });
  Builder builder{nodes_, tokens};
  builder.add_cells(2 * kBytes);
  for (std::uint32_t cell = 1; cell < kBytes; ++cell) builder.take(cell, kNowhere);
  builder.build();
}

std::uint32_t TokenTrie::walk(std::uint32_t node, std::string_view bytes) const {
  for (const char byte : bytes) {
    if (node == kNowhere) break;
    node = child(node, byte);
  }
  return node;
}

}  // namespace keel
