#include "tests/fuzz/use_tokenizer.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tests/fuzz/target.h"

namespace keel::fuzz {
namespace {

constexpr std::string_view kTexts[] = {"", "Hello, world: it's 1234 \n\n tokens",
                                       "a\xcc\x81\xe4\xb8\xad\xf0\x9f\x99\x82<s>[MASK]</s> \xe2\x96\x81x",
                                       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\xff\xfe broken \xc3"};

void encode_and_decode(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<std::uint32_t> ids = tokenizer.encode(text);
  for (const std::uint32_t id : ids) require(id < tokenizer.vocabulary_size(), "a token belongs to the vocabulary");
  require(ids == tokenizer.encode(text), "a text has the same tokens again");
  require(tokenizer.last_border(text) <= text.size(), "a border lies in the text");
  (void)tokenizer.decode(ids);
  const Encoding encoding = tokenizer.encode(TextPair{text, kTexts[1]}, {});
  for (std::size_t i = 0; i < encoding.size(); ++i)
    require(encoding.offsets[i].begin <= encoding.offsets[i].end, "a place ends behind its begin");
}

}  // namespace

void use_tokenizer(const Tokenizer& tokenizer) {
  for (const std::string_view text : kTexts) (void)accepts([&] { encode_and_decode(tokenizer, text); });
}

}  // namespace keel::fuzz
