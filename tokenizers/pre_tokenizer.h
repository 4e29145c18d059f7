#pragma once
// Pre-tokenizers: where a text is cut before a model looks for tokens in each piece.

#include <memory>
#include <string>
#include <vector>

#include "keel/tokenizers/pattern.h"
#include "keel/tokenizers/pieces.h"

namespace keel {

// Does not change once made; any number of threads may use it at once.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void cut(Pieces& pieces) const = 0;
  // What becomes of a border between two lines (pattern.h).
  virtual Pattern::AtLines at_lines() const { return Pattern::AtLines::may_cross; }
};
using PreTokenizerPtr = std::shared_ptr<const PreTokenizer>;

// What becomes of a delimiter that a pattern found.
enum class Delimiter { removed, isolated, merged_with_previous, merged_with_next, contiguous };
enum class PrependScheme { always, first, never };

// Factories, named as the components of tokenizer.json.
namespace pre_tokenizers {

PreTokenizerPtr byte_level(bool add_prefix_space, bool use_regex);
PreTokenizerPtr whitespace();        // \w+|[^\w\s]+
PreTokenizerPtr whitespace_split();  // by white space alone
PreTokenizerPtr bert();
PreTokenizerPtr metaspace(char32_t replacement, PrependScheme scheme, bool split);
PreTokenizerPtr split(PatternPtr pattern, Delimiter delimiter, bool invert);
PreTokenizerPtr punctuation(Delimiter delimiter);
PreTokenizerPtr digits(bool individual);
PreTokenizerPtr char_delimiter(char32_t delimiter);
PreTokenizerPtr unicode_scripts();
PreTokenizerPtr fixed_length(std::int64_t characters);
PreTokenizerPtr sequence(std::vector<PreTokenizerPtr> pre_tokenizers);

}  // namespace pre_tokenizers
}  // namespace keel
