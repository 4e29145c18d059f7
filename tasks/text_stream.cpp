#include "keel/tasks/text_stream.h"

#include <algorithm>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/tokenizers/valid_text.h"

namespace keel {
namespace {

// Tokens of a prompt that may decide how the next is written.
constexpr std::size_t kContext = 8;
// Tokens of one character at most.
constexpr std::size_t kLongestCharacter = 8;

// Whether the last character may go on: some bytes of it are missing, or a tokenizer wrote U+FFFD for such.
bool ends_inside_character(std::string_view text) {
  if (text.ends_with("\xef\xbf\xbd")) return true;
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const std::size_t length = byte >= 0xf0 && byte <= 0xf4 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 1;
    return byte >= 0x80 && byte <= 0xf4 && length > back;
  }
  return false;
}

// Bytes at the end that may be the beginning of a stop.
std::size_t bytes_in_doubt(std::string_view text, std::span<const std::string> stops) {
  std::size_t most = 0;
  for (const std::string_view stop : stops)
    for (std::size_t n = std::min(text.size(), stop.size() - 1); n > most; --n)
      if (text.ends_with(stop.substr(0, n))) most = n;
  return most;
}

}  // namespace

void check_stops(std::span<const std::string> stops) {
  for (const std::string& stop : stops)
    KEEL_CHECK(!stop.empty(), "a stop is empty; give the text before which the answer shall end");
}

TextStream::TextStream(TokenizerPtr tokenizer, std::span<const std::uint32_t> prompt, std::vector<std::string> stops)
    : tokenizer_(std::move(tokenizer)), stops_(std::move(stops)) {
  check_stops(stops_);
  const auto context = prompt.last(std::min(kContext, prompt.size()));
  tokens_.assign(context.begin(), context.end());
  told_ = tokens_.size();
  before_ = decode(0, told_);
}

std::string TextStream::decode(std::size_t begin, std::size_t end) const {
  return end == begin ? std::string() : tokenizer_->decode(std::span(tokens_).subspan(begin, end - begin));
}

std::string TextStream::add(std::int64_t token) {
  if (has_ended_ || token < 0 || token >= tokenizer_->vocabulary_size()) return {};
  tokens_.push_back(static_cast<std::uint32_t>(token));
  const std::string text = decode(0, tokens_.size());
  if (text.size() <= before_.size()) return {};
  if (ends_inside_character(text) && tokens_.size() - told_ < kLongestCharacter) return {};
  const std::string fresh = text.substr(before_.size());
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(told_));
  told_ = tokens_.size();
  before_ = decode(0, told_);
  return take(fresh);
}

std::string TextStream::take(std::string_view fresh) {
  std::string storage;
  held_ += valid_utf8(fresh, storage);
  std::size_t stop = std::string::npos;
  for (const std::string& each : stops_) stop = std::min(stop, held_.find(each));
  has_ended_ = stop != std::string::npos;
  const std::size_t sure = has_ended_ ? stop : held_.size() - bytes_in_doubt(held_, stops_);
  std::string told = held_.substr(0, sure);
  held_.erase(0, has_ended_ ? std::string::npos : sure);
  return told;
}

std::string TextStream::finish() {
  if (has_ended_) return {};
  const std::string text = decode(0, tokens_.size());
  std::string told = text.size() > before_.size() ? take(std::string_view(text).substr(before_.size())) : std::string();
  told_ = tokens_.size();
  before_ = text;
  if (!has_ended_) told += std::exchange(held_, {});
  return told;
}

}  // namespace keel
