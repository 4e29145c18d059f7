#pragma once
// Patterns that cut a text: the expressions that models of the field use, compiled by hand, and others by Oniguruma.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tokenizers/text_span.h"

namespace keel {

// Matches of an expression, from left to right, without overlap, as Oniguruma finds them in UTF-8 text.
class Pattern {
 public:
  // What becomes of a border between two lines: a line feed behind a visible ASCII character, and an ASCII letter or
  // digit behind that. By it a long text is cut into parts that are encoded one by one.
  enum class AtLines : unsigned char {
    may_cross,  // a match of the whole may be none of the parts
    leaves,     // the matches of the whole are those of the parts
    cuts,       // likewise, and no piece between them reaches across it
  };
  virtual ~Pattern() = default;
  // The first match that begins at `from` or later; none when there is none. Matches may be empty where the expression
  // allows.
  virtual std::optional<TextSpan> find(std::string_view text, std::uint32_t from) const = 0;
  virtual AtLines at_lines() const { return AtLines::may_cross; }
  // Appends every match to `out`.
  virtual void find_all(std::string_view text, std::vector<TextSpan>& out) const;
};
using PatternPtr = std::shared_ptr<const Pattern>;

namespace patterns {

// One scanner by hand for each expression that GPT-2, Llama 3, Qwen 2, Mistral and relatives write in tokenizer.json;
// it is found by the expression's text. Another expression is compiled by Oniguruma, or, in a build without it, is an
// Error that lists what is known. A malformed expression is an Error with Oniguruma's reason.
PatternPtr expression(std::string_view text);
PatternPtr literal(std::string text);
PatternPtr gpt2();  // of the ByteLevel pre-tokenizer

}  // namespace patterns
}  // namespace keel
