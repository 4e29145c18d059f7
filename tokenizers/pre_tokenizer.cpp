#include "keel/tokenizers/pre_tokenizer.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/tokenizers/divide_pieces.h"
#include "keel/tokenizers/script_ranges.h"
#include "keel/tokenizers/unicode.h"

namespace keel {
namespace {

// Cuts where the script changes. Characters of any script go with those before them; in front of a piece, they are
// dropped.
class UnicodeScripts final : public PreTokenizer {
 public:
  void cut(Pieces& pieces) const override {
    divide_pieces(pieces, [](std::string_view text, const auto& add) {
      std::optional<std::uint32_t> begin;
      std::uint8_t script = kAnyScript;
      for (std::size_t at = 0; at < text.size();) {
        const auto here = static_cast<std::uint32_t>(at);
        const std::uint8_t next = script_of(next_character(text, at));
        if (next == kAnyScript || next == script) continue;
        if (begin) add(*begin, here);
        begin = here;
        script = next;
      }
      if (begin) add(*begin, static_cast<std::uint32_t>(text.size()));
    });
  }
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(std::int64_t characters) : characters_(characters) {
    if (characters < 1) throw Error(concat("pieces of ", characters, " characters: a length is 1 or more"));
  }
  void cut(Pieces& pieces) const override {
    divide_pieces(pieces, [this](std::string_view text, const auto& add) {
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        for (std::int64_t i = 0; i < characters_ && at < text.size(); ++i) next_character(text, at);
        add(static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(at));
      }
    });
  }

 private:
  std::int64_t characters_;
};

class PreTokenizerSequence final : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<PreTokenizerPtr> all) : all_(std::move(all)) {}
  void cut(Pieces& pieces) const override {
    for (const PreTokenizerPtr& each : all_) each->cut(pieces);
  }
  Pattern::AtLines at_lines() const override {
    Pattern::AtLines all = Pattern::AtLines::leaves;
    for (const PreTokenizerPtr& each : all_) {
      const Pattern::AtLines one = each->at_lines();
      if (one == Pattern::AtLines::may_cross) return one;
      if (one == Pattern::AtLines::cuts) all = one;
    }
    return all;
  }

 private:
  std::vector<PreTokenizerPtr> all_;
};

}  // namespace

namespace pre_tokenizers {

PreTokenizerPtr unicode_scripts() { return std::make_shared<UnicodeScripts>(); }

PreTokenizerPtr fixed_length(std::int64_t characters) { return std::make_shared<FixedLength>(characters); }

PreTokenizerPtr sequence(std::vector<PreTokenizerPtr> pre_tokenizers) {
  return std::make_shared<PreTokenizerSequence>(std::move(pre_tokenizers));
}

}  // namespace pre_tokenizers
}  // namespace keel
