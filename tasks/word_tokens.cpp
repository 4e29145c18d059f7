#include "keel/tasks/word_tokens.h"

#include "keel/tokenizers/valid_text.h"

namespace keel {

WordTokens encoded_words(const Tokenizer& tokenizer, std::span<const std::string> words, const TextLimit& limit) {
  std::string text, storage;
  std::vector<std::uint32_t> ends;  // of each word, in bytes
  for (const std::string& word : words) {
    if (!ends.empty()) text += ' ';
    text += valid_utf8(word, storage);
    ends.push_back(static_cast<std::uint32_t>(text.size()));
  }
  WordTokens made = {.encoding = encoded_record(tokenizer, {.first = text, .second = {}}, limit), .first_of = {}};
  const Encoding& encoding = made.encoding;
  made.first_of.assign(encoding.size(), kNoWord);
  std::size_t word = 0;
  bool is_first = true;  // of the word
  for (std::size_t i = 0; i < encoding.size(); ++i) {
    TextSpan span = encoding.offsets[i];
    if (encoding.special[i] != 0) continue;
    while (span.begin < span.end && text[span.begin] == ' ') ++span.begin;  // those before a word are not of it
    if (span.begin == span.end) continue;
    for (; word < ends.size() && ends[word] <= span.begin; ++word) is_first = true;
    if (word == ends.size()) break;
    if (is_first) made.first_of[i] = static_cast<std::int64_t>(word);
    is_first = false;
  }
  return made;
}

}  // namespace keel
