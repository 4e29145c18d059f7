#include "keel/tokenizers/tokenizer.h"

#include "keel/runtime/parallel.h"
#include "keel/runtime/xxh3.h"

namespace keel {

std::vector<Encoding> Tokenizer::encode_batch(const Context& context, std::span<const TextPair> texts,
                                              const EncodeOptions& options) const {
  constexpr std::int64_t kTextsOfAChunk = 4;  // about 10 microseconds, where texts are short
  std::vector<Encoding> encodings(texts.size());
  parallel_for(context, static_cast<std::int64_t>(texts.size()), kTextsOfAChunk,
               [&](std::int64_t begin, std::int64_t end) {
                 for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
                   encodings[i] = encode(texts[i], options);
               });
  if (const std::optional<Padding> padding = options.padding ? options.padding : file_padding())
    pad(encodings, *padding);
  return encodings;
}

std::string Tokenizer::fingerprint() const {
  const std::string json = to_json();
  return hexadecimal(xxh3(std::as_bytes(std::span(json))));
}

}  // namespace keel
