// Normalizers whose answer for a character does not depend on those around it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "keel/runtime/utf8.h"
#include "keel/tokenizers/byte_characters.h"
#include "keel/tokenizers/normal_forms.h"
#include "keel/tokenizers/normalizer.h"
#include "keel/tokenizers/older_unicode.h"
#include "keel/tokenizers/rewriting_normalizer.h"
#include "keel/tokenizers/unicode.h"

namespace keel {
namespace {

// `Map` has changes(c, its class) and append(c, its class, out), where changes() may be true of a character that stays.
template <class Map>
class CharacterNormalizer final : public RewritingNormalizer {
 public:
  bool works_by_lines() const override { return true; }
  explicit CharacterNormalizer(Map map) : map_(std::move(map)), table_(CharacterTable::get()) {
    for (char32_t c = 0; c < ascii_changes_.size(); ++c) ascii_changes_[c] = map_.changes(c, table_[c]);
  }

 protected:
  std::size_t find_change(std::string_view text, std::size_t from) const override {
    for (std::size_t at = from; at < text.size();) {
      const auto byte = static_cast<unsigned char>(text[at]);
      std::size_t next = at + 1;
      if (byte < 0x80) {
        if (ascii_changes_[byte]) return at;
      } else {
        next = at;
        const char32_t c = next_character(text, next);
        if (map_.changes(c, table_[c])) return at;
      }
      at = next;
    }
    return text.size();
  }

  std::size_t change(std::size_t at, Output& output) const override {
    std::size_t next = at;
    const char32_t c = next_character(output.text(), next);
    std::string made;  // short: no memory is asked for
    map_.append(c, table_[c], made);
    output.replace(at, next, made);
    return next;
  }

 private:
  Map map_;
  const CharacterTable& table_;
  std::array<bool, 0x80> ascii_changes_{};
};

void append_lowered(char32_t c, std::string& out) {
  const Lowered small = lowered(c);
  for (std::size_t i = 0; i < small.count; ++i) append_utf8(out, small.characters[i]);
}

struct LowercaseMap {
  static bool changes(char32_t, CharacterClass is) { return is.has_lower(); }
  static void append(char32_t c, CharacterClass, std::string& out) { append_lowered(c, out); }
};

struct AccentMap {
  static bool changes(char32_t, CharacterClass is) { return is.is_accent(); }
  static void append(char32_t, CharacterClass, std::string&) {}
};

struct ByteLevelMap {
  static bool changes(char32_t c, CharacterClass) { return c >= 0x80 || ByteCharacters::character(c & 0xff) != c; }
  static void append(char32_t c, CharacterClass, std::string& out) {
    std::string bytes;
    append_utf8(bytes, c);
    ByteCharacters::append(bytes, out);
  }
};

// What SentencePiece's rules "nmt" remove, and what they make a space.
constexpr CharacterRange kNmtRemoved[] = {{0x1, 0x8},   {0xb, 0xb},   {0xe, 0x1f},
                                          {0x7f, 0x7f}, {0x8f, 0x8f}, {0x9f, 0x9f}};
constexpr CharacterRange kNmtSpaces[] = {{0x9, 0xa},       {0xc, 0xd},       {0x1680, 0x1680}, {0x200b, 0x200f},
                                         {0x2028, 0x2029}, {0x2581, 0x2581}, {0xfeff, 0xfeff}, {0xfffd, 0xfffd}};

struct NmtMap {
  static bool changes(char32_t c, CharacterClass) { return lies_in(c, kNmtRemoved) || lies_in(c, kNmtSpaces); }
  static void append(char32_t c, CharacterClass, std::string& out) {
    if (lies_in(c, kNmtSpaces)) out += ' ';
  }
};

// Every step of BERT's normalizer at once. Decomposing character by character equals decomposing the text where all
// that could change places are accents, which are removed.
class BertMap {
 public:
  explicit BertMap(const normalizers::BertOptions& options) : options_(options), strips_(strips(options)) {
    std::uint32_t flags = 0;
    if (options.clean_text) flags |= CharacterClass::kControl | CharacterClass::kWhiteSpace;
    if (options.handle_chinese_chars) flags |= CharacterClass::kChinese;
    if (options.lowercase) flags |= CharacterClass::kLowers;
    if (strips_) flags |= CharacterClass::kDecomposes | CharacterClass::kBertAccent;
    flags_ = flags;
  }
  static bool strips(const normalizers::BertOptions& options) {
    using Strip = normalizers::BertOptions::StripAccents;
    return options.strip_accents == Strip::yes || (options.strip_accents == Strip::as_lowercase && options.lowercase);
  }

  bool changes(char32_t c, CharacterClass is) const { return is.has(flags_) && c != U' '; }
  void append(char32_t c, CharacterClass is, std::string& out) const {
    if (options_.clean_text) {
      if (is.is_control() || c == 0) return;
      if (is.is_white_space()) c = U' ';
    }
    const bool stands_alone = options_.handle_chinese_chars && is.is_chinese();
    if (stands_alone) out += ' ';
    const auto parts = strips_ ? forms_.decomposition(c, false) : std::span<const char32_t>();
    for (const char32_t part : parts) append_part(part, out);
    if (parts.empty()) append_part(c, out);
    if (stands_alone) out += ' ';
  }

 private:
  void append_part(char32_t c, std::string& out) const {
    if (strips_ && table_[c].is_bert_accent()) return;
    if (options_.lowercase) {
      append_lowered(c, out);
    } else {
      append_utf8(out, c);
    }
  }

  normalizers::BertOptions options_;
  bool strips_;
  std::uint32_t flags_ = 0;
  const NormalForms& forms_ = NormalForms::get();
  const CharacterTable& table_ = CharacterTable::get();
};

struct BertAccentMap {
  static bool changes(char32_t, CharacterClass is) { return is.is_bert_accent(); }
  static void append(char32_t, CharacterClass, std::string&) {}
};

template <class Map>
NormalizerPtr by_character(Map map) {
  return std::make_shared<CharacterNormalizer<Map>>(std::move(map));
}

class BertNormalizer final : public Normalizer {
 public:
  bool works_by_lines() const override { return true; }
  explicit BertNormalizer(const normalizers::BertOptions& options)
      : looks_for_marks_(BertMap::strips(options)), at_once_(by_character(BertMap(options))) {
    if (!looks_for_marks_) return;
    using Strip = normalizers::BertOptions::StripAccents;
    step_by_step_ = normalizers::sequence({
        by_character(BertMap({options.clean_text, options.handle_chinese_chars, Strip::no, false})),
        normalizers::nfd(),
        by_character(BertAccentMap()),
        by_character(BertMap({false, false, Strip::no, options.lowercase})),
    });
  }

  void normalize(Pieces& pieces) const override {
    const bool may_move = looks_for_marks_ && std::ranges::any_of(pieces.pieces(), [&](const Pieces::Piece& piece) {
                            return !piece.is_token() && has_staying_mark(pieces.text(piece));
                          });
    (may_move ? step_by_step_ : at_once_)->normalize(pieces);
  }

 private:
  bool has_staying_mark(std::string_view text) const {
    for (std::size_t at = 0; at < text.size();) {
      if (static_cast<unsigned char>(text[at]) < 0x80) {
        ++at;
      } else if (table_[next_character(text, at)].has(CharacterClass::kStaysBesideAccents)) {
        return true;
      }
    }
    return false;
  }

  const CharacterTable& table_ = CharacterTable::get();
  bool looks_for_marks_;
  NormalizerPtr at_once_, step_by_step_;
};

}  // namespace

namespace normalizers {

NormalizerPtr bert(const BertOptions& options) { return std::make_shared<BertNormalizer>(options); }
NormalizerPtr lowercase() { return by_character(LowercaseMap()); }
NormalizerPtr strip_accents() { return by_character(AccentMap()); }
NormalizerPtr nmt() { return by_character(NmtMap()); }
NormalizerPtr byte_level() { return by_character(ByteLevelMap()); }

}  // namespace normalizers
}  // namespace keel
