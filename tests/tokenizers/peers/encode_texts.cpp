// What a tokenizer makes of many texts, as numbers that peers/tokenizers_agrees compares with the Tokenizers library's.
//
// usage: encode_texts TOKENIZER IN OUT
// IN: texts, each behind its length in bytes (u32). OUT (u32): of each text its encoding, its ids without special
// tokens and what they are decoded as, with special tokens and without; then each two neighbours as a pair; then each
// text in windows.

#include <cstdint>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/tokenizers/tokenizer_files.h"
#include "keel/tokenizers/valid_text.h"

namespace keel {
namespace {

constexpr std::uint32_t kRefused = 0xffffffff;
constexpr Truncation kWindows = {.length = 16, .stride = 3, .strategy = Truncation::Strategy::longest_first};

class Written {
 public:
  void add(std::uint32_t number) { bytes_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  template <class Numbers>
  void add_all(const Numbers& numbers) {
    for (const auto number : numbers) add(static_cast<std::uint32_t>(number));
  }
  void add_text(std::string_view text) {
    add(static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
  }
  // Places in characters, of the text that a token belongs to.
  void add_encoding(const Encoding& encoding, std::string_view first, std::string_view second) {
    const std::vector<TextSpan> in_first = character_offsets(first, encoding.offsets);
    const std::vector<TextSpan> in_second = character_offsets(second, encoding.offsets);
    add(static_cast<std::uint32_t>(encoding.size()));
    add_all(encoding.ids);
    add_all(encoding.type_ids);
    for (std::size_t i = 0; i < encoding.size(); ++i) {
      const TextSpan place = encoding.sequence_ids[i] == 1 ? in_second[i] : in_first[i];
      add(place.begin);
      add(place.end);
    }
    add_all(encoding.word_ids);
    add_all(encoding.special);
    add(static_cast<std::uint32_t>(encoding.overflow.size()));
    for (const Encoding& window : encoding.overflow) add_encoding(window, first, second);
  }
  // Texts that the library cannot cut to this length are an error there, too.
  template <class F>
  void add_or_refuse(F&& encode, std::string_view text) {
    try {
      add_encoding(encode(), text, "");
    } catch (const Error&) { add(kRefused); }
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

std::vector<std::string> texts_in(const std::string& path) {
  const std::string bytes = read_text_file(path);
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint32_t size = 0;
    std::memcpy(&size, bytes.data() + at, sizeof size);
    texts.push_back(bytes.substr(at + sizeof size, size));
    at += sizeof size + size;
  }
  return texts;
}

void encode_texts(const std::string& tokenizer_path, const std::string& in, const std::string& out) {
  const TokenizerPtr tokenizer = load_tokenizer(tokenizer_path);
  const std::vector<std::string> texts = texts_in(in);
  std::vector<std::string> storage(texts.size());
  std::vector<std::string_view> valid;  // in which places are counted
  for (std::size_t i = 0; i < texts.size(); ++i) valid.push_back(valid_utf8(texts[i], storage[i]));
  Written written;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    written.add_encoding(tokenizer->encode(TextPair{texts[i], {}}, {}), valid[i], "");
    const std::vector<std::uint32_t> ids = tokenizer->encode(texts[i]);
    written.add(static_cast<std::uint32_t>(ids.size()));
    written.add_all(ids);
    for (const bool skip : {false, true}) written.add_text(tokenizer->decode(ids, skip));
  }
  for (std::size_t i = 0; i + 1 < texts.size(); i += 2)
    written.add_encoding(tokenizer->encode(TextPair{texts[i], texts[i + 1]}, {}), valid[i], valid[i + 1]);
  for (std::size_t i = 0; i < texts.size(); ++i)
    written.add_or_refuse(
        [&] {
          return tokenizer->encode(TextPair{texts[i], {}}, {.truncation = kWindows});
        },
        valid[i]);
  write_text_file(out, written.bytes());
}

}  // namespace
}  // namespace keel

int main(int count, char** arguments) {
  try {
    if (count != 4) throw keel::Error("usage: encode_texts TOKENIZER IN OUT");
    keel::encode_texts(arguments[1], arguments[2], arguments[3]);
  } catch (const keel::Error& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
