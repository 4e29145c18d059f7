#pragma once
// Tokens by text and texts by token.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

// Numbers need not be dense: published vocabularies have holes. At most 2^31 tokens.
class Vocabulary {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  // Two texts of one number or one text twice is an Error that names both.
  explicit Vocabulary(std::vector<std::pair<std::string, std::uint32_t>> tokens);

  std::uint32_t find(std::string_view text) const;                  // kNone: it is no token
  std::optional<std::string_view> text(std::uint32_t token) const;  // none: a hole, or beyond the end
  std::int64_t size() const;                                        // one more than the largest number
  std::int64_t count() const;                                       // tokens there are

 private:
  std::vector<std::uint64_t> begins_;  // of each number's text in bytes_
  std::vector<bool> is_there_;
  std::string bytes_;
  std::vector<std::uint32_t> slots_;  // open addressing by xxh3
};

}  // namespace keel
