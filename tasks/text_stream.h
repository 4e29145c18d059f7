#pragma once
// A text that a decoder writes, told as far as it is sure: whole characters, and nothing of a stop.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tokenizers/tokenizer.h"

namespace keel {

// An Error where one is empty.
void check_stops(std::span<const std::string> stops);

class TextStream {
 public:
  // `prompt`: tokens before, which decide how the first ones are written, such as with a space; may be empty. The text
  // ends before the first of `stops` in it, which the prompt is no part of.
  TextStream(TokenizerPtr tokenizer, std::span<const std::uint32_t> prompt, std::vector<std::string> stops);

  // What is sure now and has not been told: valid UTF-8. A token outside of the vocabulary, such as one of a vocabulary
  // that was rounded up, has no text. Behind the end there is none.
  std::string add(std::int64_t token);
  // What is left, where no token follows: a part of a character is U+FFFD.
  std::string finish();
  // Whether a stop was found.
  bool has_ended() const { return has_ended_; }

 private:
  std::string decode(std::size_t begin, std::size_t end) const;
  std::string take(std::string_view fresh);

  TokenizerPtr tokenizer_;
  std::vector<std::string> stops_;
  std::vector<std::uint32_t> tokens_;  // those that decide how the next are written, then those not yet told
  std::size_t told_ = 0;               // tokens of them that are told
  std::string before_;                 // text of those
  std::string held_;                   // text that may become a part of a stop
  bool has_ended_ = false;
};

}  // namespace keel
