#include "keel/tokenizers/decoder.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "keel/runtime/utf8.h"
#include "keel/tokenizers/byte_characters.h"
#include "keel/tokenizers/valid_text.h"

namespace keel {
namespace {

std::string replace_all(std::string_view text, std::string_view old, std::string_view with) {
  std::string replaced;
  std::size_t from = 0;
  for (std::size_t at; !old.empty() && (at = text.find(old, from)) != std::string_view::npos; from = at + old.size()) {
    replaced += text.substr(from, at - from);
    replaced += with;
  }
  replaced += text.substr(from);
  return replaced;
}

// English punctuation and contractions without the spaces that cutting has put in front of them.
std::string without_added_spaces(std::string text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kRewrites = {{{" .", "."},
                                                                                               {" ?", "?"},
                                                                                               {" !", "!"},
                                                                                               {" ,", ","},
                                                                                               {" ' ", "'"},
                                                                                               {" n't", "n't"},
                                                                                               {" 'm", "'m"},
                                                                                               {" do not", " don't"},
                                                                                               {" 's", "'s"},
                                                                                               {" 've", "'ve"},
                                                                                               {" 're", "'re"}}};
  if (text.find(' ') == std::string::npos) return text;
  for (const auto& [old, with] : kRewrites)
    if (text.find(old) != std::string::npos) text = replace_all(text, old, with);
  return text;
}

std::string valid(std::string bytes) {
  std::string storage;
  const std::string_view text = valid_utf8(bytes, storage);
  return text.data() == bytes.data() ? std::move(bytes) : storage;
}

class ByteLevelDecoder final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens)
      if (!ByteCharacters::append_bytes(token, bytes)) bytes += token;
    tokens.assign(1, valid(std::move(bytes)));
  }
};

// The byte that a token such as <0x41> names.
std::optional<char> named_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  const int high = token[3] == '+' ? 0 : digit(token[3]), low = digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

class ByteFallback final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::vector<std::string> decoded;
    std::string bytes;
    const auto end_bytes = [&] {
      if (bytes.empty()) return;
      if (find_bad_utf8(bytes) == std::string_view::npos) decoded.push_back(bytes);
      else decoded.insert(decoded.end(), bytes.size(), "\xef\xbf\xbd");
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const std::optional<char> byte = named_byte(token)) {
        bytes += *byte;
      } else {
        end_bytes();
        decoded.push_back(std::move(token));
      }
    }
    end_bytes();
    tokens = std::move(decoded);
  }
};

class WordPieceDecoder final : public Decoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void decode(std::vector<std::string>& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) {
        if (tokens[i].starts_with(prefix_)) tokens[i].erase(0, prefix_.size());
        else tokens[i].insert(0, 1, ' ');
      }
      if (cleanup_) tokens[i] = without_added_spaces(std::move(tokens[i]));
    }
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  MetaspaceDecoder(char32_t replacement, PrependScheme scheme) : scheme_(scheme) {
    append_utf8(replacement_, replacement);
  }
  void decode(std::vector<std::string>& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replace_all(tokens[i], replacement_, i == 0 && scheme_ != PrependScheme::never ? "" : " ");
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
};

class BpeDecoder final : public Decoder {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void decode(std::vector<std::string>& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
  }

 private:
  std::string suffix_;
};

class Fuse final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::string text;
    for (const std::string& token : tokens) text += token;
    tokens.assign(1, text);
  }
};

class StripDecoder final : public Decoder {
 public:
  StripDecoder(char32_t content, std::int64_t start, std::int64_t stop) : start_(start), stop_(stop) {
    append_utf8(content_, content);
  }
  void decode(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (std::int64_t i = 0; i < start_ && rest.starts_with(content_); ++i) rest.remove_prefix(content_.size());
      for (std::int64_t i = 0; i < stop_ && rest.ends_with(content_); ++i) rest.remove_suffix(content_.size());
      token = std::string(rest);
    }
  }

 private:
  std::string content_;
  std::int64_t start_, stop_;
};

class ReplaceDecoder final : public Decoder {
 public:
  ReplaceDecoder(PatternPtr pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void decode(std::vector<std::string>& tokens) const override {
    std::vector<TextSpan> matches;
    std::string storage;
    for (std::string& token : tokens) {
      matches.clear();
      const std::string_view text = valid_utf8(token, storage);
      pattern_->find_all(text, matches);
      if (matches.empty()) continue;
      std::string replaced;
      std::size_t from = 0;
      for (const TextSpan& match : matches) {
        replaced += text.substr(from, match.begin - from);
        replaced += content_;
        from = match.end;
      }
      replaced += text.substr(from);
      token = std::move(replaced);
    }
  }

 private:
  PatternPtr pattern_;
  std::string content_;
};

class CtcDecoder final : public Decoder {
 public:
  CtcDecoder(std::string pad, std::string word_delimiter, bool cleanup)
      : pad_(std::move(pad)), word_delimiter_(std::move(word_delimiter)), cleanup_(cleanup) {}
  void decode(std::vector<std::string>& tokens) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) {
      token = replace_all(token, pad_, "");
      if (cleanup_) token = replace_all(without_added_spaces(std::move(token)), word_delimiter_, " ");
    }
    std::erase_if(tokens, [](const std::string& token) { return token.empty(); });
  }

 private:
  std::string pad_, word_delimiter_;
  bool cleanup_;
};

class Decoders final : public Decoder {
 public:
  explicit Decoders(std::vector<DecoderPtr> decoders) : decoders_(std::move(decoders)) {}
  void decode(std::vector<std::string>& tokens) const override {
    for (const DecoderPtr& decoder : decoders_) decoder->decode(tokens);
  }

 private:
  std::vector<DecoderPtr> decoders_;
};

}  // namespace

namespace decoders {

DecoderPtr byte_level() { return std::make_shared<ByteLevelDecoder>(); }
DecoderPtr byte_fallback() { return std::make_shared<ByteFallback>(); }
DecoderPtr word_piece(std::string prefix, bool cleanup) {
  return std::make_shared<WordPieceDecoder>(std::move(prefix), cleanup);
}
DecoderPtr metaspace(char32_t replacement, PrependScheme scheme) {
  return std::make_shared<MetaspaceDecoder>(replacement, scheme);
}
DecoderPtr bpe(std::string suffix) { return std::make_shared<BpeDecoder>(std::move(suffix)); }
DecoderPtr fuse() { return std::make_shared<Fuse>(); }
DecoderPtr strip(char32_t content, std::int64_t start, std::int64_t stop) {
  return std::make_shared<StripDecoder>(content, start, stop);
}
DecoderPtr replace(PatternPtr pattern, std::string content) {
  return std::make_shared<ReplaceDecoder>(std::move(pattern), std::move(content));
}
DecoderPtr ctc(std::string pad, std::string word_delimiter, bool cleanup) {
  return std::make_shared<CtcDecoder>(std::move(pad), std::move(word_delimiter), cleanup);
}
DecoderPtr sequence(std::vector<DecoderPtr> decoders) { return std::make_shared<Decoders>(std::move(decoders)); }

}  // namespace decoders
}  // namespace keel
