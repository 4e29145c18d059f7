#pragma once
// Post-processors: the special tokens around one text or two.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tokenizers/encoding.h"

namespace keel {

// Does not change once made; any number of threads may use it at once.
class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  // Special tokens that it adds to one text, or to two.
  virtual std::int64_t added(bool pair) const = 0;
  // `parts` are one text or two, of `texts` (valid UTF-8), or what a processor before made of them: special tokens are
  // parts of their own, or join a text. Where `add_specials` is false, it numbers types alone.
  virtual void process(const TextPair& texts, std::vector<Encoding>& parts, bool add_specials) const = 0;
};
using PostProcessorPtr = std::shared_ptr<const PostProcessor>;

struct SpecialToken {
  std::string text;
  std::uint32_t id = 0;
};

// Of the tokens by number.
using SpacesOfTokens = std::function<TokenSpaces(std::uint32_t)>;

namespace post_processors {

// A part of a template: a text (A or B), or a special token that may stand for several ids.
struct TemplatePart {
  enum class What { first, second, special } what = What::first;
  std::vector<std::uint32_t> ids;  // of a special token
  std::uint32_t type_id = 0;
};
PostProcessorPtr template_of(std::vector<TemplatePart> single, std::vector<TemplatePart> pair);
PostProcessorPtr bert(SpecialToken cls, SpecialToken sep);
// `spaces` may be null where offsets are not trimmed.
PostProcessorPtr roberta(SpecialToken cls, SpecialToken sep, bool trim_offsets, bool add_prefix_space,
                         SpacesOfTokens spaces);
PostProcessorPtr byte_level(bool trim_offsets, bool add_prefix_space, SpacesOfTokens spaces);
PostProcessorPtr sequence(std::vector<PostProcessorPtr> processors);

}  // namespace post_processors

// Both texts (`second` may be null) by a post-processor; without one the second stands behind the first. Windows of the
// overflow are joined, too: each of one text with the other text and with each of its windows.
Encoding post_process(const PostProcessor* processor, const TextPair& texts, Encoding first, Encoding* second,
                      bool add_specials);

}  // namespace keel
