// Normalizers that look at the ends of a text or for a word, and chains of others.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/tokenizers/normalizer.h"
#include "keel/tokenizers/pieces.h"
#include "keel/tokenizers/rewriting_normalizer.h"
#include "keel/tokenizers/unicode.h"

namespace keel {
namespace {

class StripNormalizer final : public RewritingNormalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}

 protected:
  std::size_t find_change(std::string_view text, std::size_t from) const override {
    if (from == 0 && left_ && front(text) > 0) return 0;
    return right_ ? back(text, from) : text.size();
  }

  std::size_t change(std::size_t at, Output& output) const override {
    const std::string_view text = output.text();
    const std::size_t end = at == 0 && left_ ? front(text) : text.size();
    output.replace(at, end, "");
    return end;
  }

 private:
  std::size_t front(std::string_view text) const {
    std::size_t end = 0;
    for (std::size_t next = 0; end < text.size(); end = next) {
      if (!table_[next_character(text, next)].is_white_space()) break;
    }
    return end;
  }
  // Where the white space at the end of the text begins, which is not before `from`.
  std::size_t back(std::string_view text, std::size_t from) const {
    std::size_t begin = text.size();
    while (begin > from) {
      std::size_t at = begin - 1;
      while (at > from && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
      std::size_t next = at;
      if (!table_[next_character(text, next)].is_white_space()) break;
      begin = at;
    }
    return begin;
  }

  const CharacterTable& table_ = CharacterTable::get();
  bool left_, right_;
};

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(std::string text) : text_(std::move(text)) {}
  void normalize(Pieces& pieces) const override {
    if (text_.empty() || pieces.pieces().empty()) return;
    Pieces::Rewrite rewrite(pieces);
    for (const Pieces::Piece& piece : pieces.pieces()) {
      if (piece.is_token()) {
        rewrite.token(piece);
        continue;
      }
      rewrite.insert(text_);
      rewrite.keep(piece.bytes);
      rewrite.cut();
    }
    rewrite.done();
  }

 private:
  std::string text_;
};

// The empty pattern stands before every character, and at the end.
class ReplaceTextNormalizer final : public RewritingNormalizer {
 public:
  bool works_by_lines() const override { return pattern_.find('\n') == std::string::npos; }
  ReplaceTextNormalizer(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

 protected:
  std::size_t find_change(std::string_view text, std::size_t from) const override {
    return std::min(text.find(pattern_, from), text.size());
  }
  std::size_t change(std::size_t at, Output& output) const override {
    std::size_t end = at + pattern_.size();
    output.replace(at, end, content_);
    if (!pattern_.empty()) return end;
    next_character(output.text(), end);
    output.keep(at, end);
    if (end == output.text().size()) output.replace(end, end, content_);
    return end;
  }

 private:
  std::string pattern_, content_;
};

class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<NormalizerPtr> normalizers) : normalizers_(std::move(normalizers)) {}
  void normalize(Pieces& pieces) const override {
    for (const NormalizerPtr& normalizer : normalizers_) normalizer->normalize(pieces);
  }
  bool works_by_lines() const override {
    return std::ranges::all_of(normalizers_, [](const NormalizerPtr& each) { return each->works_by_lines(); });
  }

 private:
  std::vector<NormalizerPtr> normalizers_;
};

}  // namespace

namespace normalizers {

NormalizerPtr strip(bool left, bool right) { return std::make_shared<StripNormalizer>(left, right); }
NormalizerPtr prepend(std::string text) { return std::make_shared<PrependNormalizer>(std::move(text)); }
NormalizerPtr replace_text(std::string pattern, std::string content) {
  return std::make_shared<ReplaceTextNormalizer>(std::move(pattern), std::move(content));
}
NormalizerPtr sequence(std::vector<NormalizerPtr> normalizers) {
  return std::make_shared<SequenceNormalizer>(std::move(normalizers));
}

}  // namespace normalizers
}  // namespace keel
