// Pre-tokenizers that write other characters: for bytes, and for spaces.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/utf8.h"
#include "keel/tokenizers/byte_characters.h"
#include "keel/tokenizers/pre_tokenizer.h"
#include "keel/tokenizers/unicode.h"

namespace keel {
namespace {

TextSpan character_at(std::string_view text, std::uint32_t at) {
  std::size_t end = at;
  next_character(text, end);
  return {at, static_cast<std::uint32_t>(end)};
}

class ByteLevelPreTokenizer final : public PreTokenizer {
 public:
  ByteLevelPreTokenizer(bool add_prefix_space, bool use_regex)
      : add_prefix_space_(add_prefix_space), pattern_(use_regex ? patterns::gpt2() : nullptr) {}

  void cut(Pieces& pieces) const override {
    Writer out(pieces);
    std::string with_space;
    std::vector<TextSpan> found;
    for (const Pieces::Piece& piece : pieces.pieces()) {
      if (piece.is_token()) {
        out.rewrite.token(piece);
        continue;
      }
      std::string_view text = pieces.text(piece);
      const std::uint32_t added = add_prefix_space_ && !text.starts_with(' ') ? 1 : 0;
      if (added > 0) text = with_space.assign(1, ' ').append(text);
      found.clear();
      if (pattern_ != nullptr) pattern_->find_all(text, found);
      else found.push_back({0, static_cast<std::uint32_t>(text.size())});
      const std::uint32_t base = piece.bytes.begin;
      for (TextSpan each : found) {
        if (added > 0 && each.begin == 0) {
          // The space has the origin of the character behind it, which may lie in the next piece.
          out.write(character_at(pieces.bytes(), base), " ");
          each.begin = 1;
        }
        out.write_characters({base + each.begin - added, base + each.end - added});
        out.rewrite.cut();
      }
    }
    out.rewrite.done();
  }
  Pattern::AtLines at_lines() const override {
    if (add_prefix_space_) return Pattern::AtLines::may_cross;
    return pattern_ != nullptr ? pattern_->at_lines() : Pattern::AtLines::leaves;
  }

 private:
  struct Writer {
    explicit Writer(Pieces& all) : pieces(all), rewrite(all) {}

    void write(TextSpan old, std::string_view bytes) {
      if (characters.size() < 2 * bytes.size()) characters.resize(2 * bytes.size());
      const char* end = ByteCharacters::write(bytes, characters.data());
      rewrite.replace(old, {characters.data(), static_cast<std::size_t>(end - characters.data())});
    }
    // Each character's bytes have its origin.
    void write_characters(TextSpan old) {
      const auto bytes_of = [&](TextSpan span) { return pieces.bytes().substr(span.begin, span.size()); };
      if (!pieces.keeps_origins()) {
        const std::uint32_t front = std::clamp(pieces.front_bytes(), old.begin, old.end);
        if (front > old.begin) write({old.begin, front}, bytes_of({old.begin, front}));
        if (front < old.end) write({front, old.end}, bytes_of({front, old.end}));
        return;
      }
      for (std::uint32_t at = old.begin; at < old.end;) {
        const TextSpan character = character_at(pieces.bytes(), at);
        write(character, bytes_of(character));
        at = character.end;
      }
    }

    const Pieces& pieces;
    Pieces::Rewrite rewrite;
    std::string characters;
  };

  bool add_prefix_space_;
  PatternPtr pattern_;  // null: pieces are not cut
};

class MetaspacePreTokenizer final : public PreTokenizer {
 public:
  MetaspacePreTokenizer(char32_t replacement, PrependScheme scheme, bool split) : scheme_(scheme), split_(split) {
    append_utf8(replacement_, replacement);
  }

  void cut(Pieces& pieces) const override {
    Pieces::Rewrite out(pieces);
    for (const Pieces::Piece& piece : pieces.pieces()) {
      if (piece.is_token()) {
        out.token(piece);
        continue;
      }
      if (prepends(pieces, piece)) out.insert(replacement_);
      write(out, pieces.text(piece), piece.bytes.begin);
      out.cut();
    }
    out.done();
  }

 private:
  bool prepends(const Pieces& pieces, const Pieces::Piece& piece) const {
    const std::string_view text = pieces.text(piece);
    if (scheme_ == PrependScheme::never || text.starts_with(' ') || text.starts_with(replacement_)) return false;
    return scheme_ == PrependScheme::always || pieces.begins_text(piece);
  }

  // Spaces become the replacement, before which the text is cut, wherever it comes from.
  void write(Pieces::Rewrite& out, std::string_view text, std::uint32_t base) const {
    const auto old = [base](std::size_t begin, std::size_t end) {
      return TextSpan{base + static_cast<std::uint32_t>(begin), base + static_cast<std::uint32_t>(end)};
    };
    std::size_t kept = 0;
    for (std::size_t at = 0; at < text.size();) {
      const bool is_space = text[at] == ' ';
      if (!is_space && (text[at] != replacement_.front() || !text.substr(at).starts_with(replacement_))) {
        ++at;
        continue;
      }
      const std::size_t end = is_space ? at + 1 : at + replacement_.size();
      out.keep(old(kept, at));
      if (split_ && at > 0) out.cut();
      if (is_space) out.replace(old(at, end), replacement_);
      else out.keep(old(at, end));
      at = kept = end;
    }
    out.keep(old(kept, text.size()));
  }

  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

}  // namespace

namespace pre_tokenizers {

PreTokenizerPtr byte_level(bool add_prefix_space, bool use_regex) {
  return std::make_shared<ByteLevelPreTokenizer>(add_prefix_space, use_regex);
}

PreTokenizerPtr metaspace(char32_t replacement, PrependScheme scheme, bool split) {
  return std::make_shared<MetaspacePreTokenizer>(replacement, scheme, split);
}

}  // namespace pre_tokenizers
}  // namespace keel
