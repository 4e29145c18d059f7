#include "keel/tokenizers/pattern.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/tokenizers/known_expressions.h"
#include "keel/tokenizers/oniguruma.h"

namespace keel {
namespace {

class LiteralPattern final : public Pattern {
 public:
  explicit LiteralPattern(std::string text) : text_(std::move(text)) {}
  std::optional<TextSpan> find(std::string_view text, std::uint32_t from) const override {
    const std::size_t at = text.find(text_, from);
    if (at == std::string_view::npos) return std::nullopt;
    return TextSpan{static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + text_.size())};
  }

 private:
  std::string text_;
};

std::uint32_t behind_character(std::string_view text, std::uint32_t at) {
  do ++at;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
  return at;
}

}  // namespace

void Pattern::find_all(std::string_view text, std::vector<TextSpan>& out) const {
  std::optional<std::uint32_t> last_end;
  for (std::uint32_t from = 0; from <= text.size();) {
    const std::optional<TextSpan> found = find(text, from);
    if (!found) return;
    if (found->size() == 0 && last_end == found->end) {  // an empty match right behind another one is none
      from = behind_character(text, from);
      continue;
    }
    out.push_back(*found);
    from = found->end;
    last_end = from;
  }
}

namespace patterns {

PatternPtr expression(std::string_view text) {
  if (PatternPtr known = find_known_expression(text)) return known;
  if (PatternPtr compiled = oniguruma_pattern(text)) return compiled;
  std::string known;
  for (const KnownExpression& each : known_expressions()) known += concat("\n  ", each.text, "   (", each.of, ")");
  throw Error(
      MessageLines{concat("the expression '", printable(text),
                          "' needs Oniguruma, which this build was configured without. It knows these:", known)});
}

PatternPtr literal(std::string text) { return std::make_shared<LiteralPattern>(std::move(text)); }

PatternPtr gpt2() {
  static const PatternPtr pattern = known_expressions().front().pattern;
  return pattern;
}

}  // namespace patterns
}  // namespace keel
