#pragma once
// Patterns of scanners. A scanner has a function match() that returns the end of the match which begins at a place
// where a character is, or the place itself where none does; it matches no empty text.

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "keel/tokenizers/pattern.h"
#include "keel/tokenizers/scanning.h"

namespace keel {

// [set]+ or [set]{1,kMost}
template <std::uint16_t kSet, int kMost = 0>
struct RunScanner {
  static std::uint32_t match(const Scan& scan, std::uint32_t at) {
    if constexpr (kMost == 0) return scan.run(at, kSet);
    return scan.run_at_most(kMost, at, kSet);
  }
};

// [^set]+
template <std::uint16_t kSet>
struct OutsideScanner {
  static std::uint32_t match(const Scan& scan, std::uint32_t at) { return scan.run_outside(at, kSet); }
};

template <class Scanner>
class ScannedPattern final : public Pattern {
 public:
  std::optional<TextSpan> find(std::string_view text, std::uint32_t from) const override {
    const Scan scan(text);
    std::uint32_t next = 0;
    for (std::uint32_t at = from; at < scan.size(); at = next) {
      if (const std::uint32_t end = Scanner::match(scan, at); end > at) return TextSpan{at, end};
      scan.classes(at, next);
    }
    return std::nullopt;
  }
  void find_all(std::string_view text, std::vector<TextSpan>& out) const override {
    const Scan scan(text);
    std::uint32_t next = 0;
    for (std::uint32_t at = 0; at < scan.size(); at = next) {
      next = Scanner::match(scan, at);
      if (next > at) out.push_back({at, next});
      else scan.classes(at, next);
    }
  }
};

template <class Scanner>
PatternPtr scanned() {
  return std::make_shared<ScannedPattern<Scanner>>();
}

}  // namespace keel
