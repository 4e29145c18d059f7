#pragma once
// Post-processors: the special tokens around one text or two.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tokenizers/encoding.h"

namespace keel {

class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  // Special tokens that it adds to one text, or to two.
  virtual std::int64_t added(bool pair) const = 0;
  // Joins both texts (`second` may be null), or only numbers their types where `add_specials` is false.
  virtual Encoding process(Encoding first, Encoding* second, bool add_specials) const = 0;
};
using PostProcessorPtr = std::shared_ptr<const PostProcessor>;

struct SpecialToken {
  std::string text;
  std::uint32_t id = 0;
};

namespace post_processors {

// A part of a template: a text (A or B), or a special token that may stand for several ids.
struct TemplatePart {
  enum class What { first, second, special } what = What::first;
  std::vector<std::uint32_t> ids;  // of a special token
  std::uint32_t type_id = 0;
};
PostProcessorPtr template_of(std::vector<TemplatePart> single, std::vector<TemplatePart> pair);
PostProcessorPtr bert(SpecialToken cls, SpecialToken sep);
PostProcessorPtr roberta(SpecialToken cls, SpecialToken sep, bool trim_offsets, bool add_prefix_space);
PostProcessorPtr byte_level(bool trim_offsets, bool add_prefix_space);
PostProcessorPtr sequence(std::vector<PostProcessorPtr> processors);

}  // namespace post_processors

// What a tokenizer without a post-processor does: the second text behind the first, types 0 and 1.
Encoding join(Encoding first, Encoding* second);

}  // namespace keel
