#pragma once
// Decoders: tokens' texts back to a text.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tokenizers/pattern.h"
#include "keel/tokenizers/pre_tokenizer.h"

namespace keel {

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Changes the tokens' texts, of which the text is what stands behind each other at the end of the chain.
  virtual void decode(std::vector<std::string>& tokens) const = 0;
};
using DecoderPtr = std::shared_ptr<const Decoder>;

namespace decoders {

DecoderPtr byte_level();     // bytes that are no UTF-8 become U+FFFD
DecoderPtr byte_fallback();  // <0x41> is a byte
DecoderPtr word_piece(std::string prefix, bool cleanup);
DecoderPtr metaspace(char32_t replacement, PrependScheme scheme);
DecoderPtr bpe(std::string suffix);
DecoderPtr fuse();
DecoderPtr strip(char32_t content, std::int64_t start, std::int64_t stop);
DecoderPtr replace(PatternPtr pattern, std::string content);
DecoderPtr ctc(std::string pad, std::string word_delimiter, bool cleanup);
DecoderPtr sequence(std::vector<DecoderPtr> decoders);

}  // namespace decoders
}  // namespace keel
