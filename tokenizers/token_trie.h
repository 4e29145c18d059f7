#pragma once
// Every token that a text begins with, in one pass over it.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "keel/tokenizers/vocabulary.h"

namespace keel {

// A double array (Aoe, "An efficient digital search algorithm by using a double-array structure", 1989): the child of a
// node by a byte lies at the node's base + byte, and names its parent. Tokens that are empty are not found.
class TokenTrie {
 public:
  static constexpr std::uint32_t kNowhere = 0;
  static constexpr std::uint32_t kRoot = 1;

  explicit TokenTrie(const Vocabulary& vocabulary);

  std::uint32_t child(std::uint32_t node, char byte) const {
    const std::size_t at = std::size_t{nodes_[node].base} + static_cast<unsigned char>(byte);
    return nodes_[at].parent == node ? static_cast<std::uint32_t>(at) : kNowhere;
  }
  std::uint32_t walk(std::uint32_t node, std::string_view bytes) const;
  // Vocabulary::kNone: no token ends here.
  std::uint32_t token(std::uint32_t node) const { return nodes_[node].token; }

 private:
  struct Node {
    std::uint32_t base = 0;
    std::uint32_t parent = kNowhere;
    std::uint32_t token = Vocabulary::kNone;
  };
  struct Builder;
  std::vector<Node> nodes_;
};

}  // namespace keel
