#pragma once
// Normalizers: what is done to a text before it is cut.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tokenizers/pieces.h"

namespace keel {

// Does not change once made; any number of threads may use it at once.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Rewrites each piece that is no token. Its text is valid UTF-8 and stays so.
  virtual void normalize(Pieces& pieces) const = 0;
  // Whether that gives the same for the parts of a text that is cut between two lines (pattern.h).
  virtual bool works_by_lines() const { return false; }
};
using NormalizerPtr = std::shared_ptr<const Normalizer>;

// Factories, named as the components of tokenizer.json (docs/design/tokenizers.md has what each does).
namespace normalizers {

struct BertOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  enum class StripAccents { as_lowercase, yes, no } strip_accents = StripAccents::as_lowercase;
  bool lowercase = true;
};
NormalizerPtr bert(const BertOptions& options);
NormalizerPtr nfc();
NormalizerPtr nfd();
NormalizerPtr nfkc();
NormalizerPtr nfkd();
NormalizerPtr lowercase();
NormalizerPtr strip(bool left, bool right);
NormalizerPtr strip_accents();
NormalizerPtr nmt();
// The character map of SentencePiece models (precompiled_charsmap, decoded from base64). One whose sizes are wrong, or
// whose replacements are no UTF-8, is an Error.
NormalizerPtr precompiled(std::string_view charsmap);
NormalizerPtr prepend(std::string text);
NormalizerPtr replace_text(std::string pattern, std::string content);
// `expression` is one of pattern_names() or, where Oniguruma is in the build, any; else an Error that says what is
// known.
NormalizerPtr replace_expression(std::string_view expression, std::string content);
NormalizerPtr byte_level();
NormalizerPtr sequence(std::vector<NormalizerPtr> normalizers);

}  // namespace normalizers
}  // namespace keel
