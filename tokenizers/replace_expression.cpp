#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/tokenizers/normalizer.h"
#include "keel/tokenizers/pattern.h"

namespace keel {
namespace {

class ReplaceExpression final : public Normalizer {
 public:
  ReplaceExpression(PatternPtr pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void normalize(Pieces& pieces) const override {
    Pieces::Rewrite out(pieces);
    std::vector<TextSpan> matches;
    for (const Pieces::Piece& piece : pieces.pieces()) {
      if (piece.is_token()) {
        out.token(piece);
        continue;
      }
      const std::uint32_t base = piece.bytes.begin;
      matches.clear();
      pattern_->find_all(pieces.text(piece), matches);
      std::uint32_t kept = base;
      for (const TextSpan match : matches) {
        out.keep({kept, base + match.begin});
        out.replace({base + match.begin, base + match.end}, content_);
        kept = base + match.end;
      }
      out.keep({kept, piece.bytes.end});
      out.cut();
    }
    out.done();
  }

 private:
  PatternPtr pattern_;
  std::string content_;
};

}  // namespace

namespace normalizers {

NormalizerPtr replace_expression(std::string_view expression, std::string content) {
  return std::make_shared<ReplaceExpression>(patterns::expression(expression), std::move(content));
}

}  // namespace normalizers
}  // namespace keel
