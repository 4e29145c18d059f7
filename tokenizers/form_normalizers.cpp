// The normal forms of Unicode's annex 15.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "keel/tokenizers/counted_changes.h"
#include "keel/tokenizers/normal_forms.h"
#include "keel/tokenizers/normalizer.h"
#include "keel/tokenizers/rewriting_normalizer.h"
#include "keel/tokenizers/unicode.h"

namespace keel {
namespace {

struct FormCharacter {
  CountedCharacter counted;
  std::uint8_t combining_class = 0;
};

// A text is worked on in stretches between characters that no form changes and that nothing before them changes.
class FormNormalizer final : public RewritingNormalizer {
 public:
  bool works_by_lines() const override { return true; }
  FormNormalizer(bool composes, bool compatibly) : composes_(composes), compatibly_(compatibly) {
    using Class = CharacterClass;
    flags_ = composes ? (compatibly ? Class::kRecomposesCompatibly : Class::kRecomposes)
                      : (compatibly ? Class::kDecomposesCompatibly : Class::kDecomposes);
  }

 protected:
  std::size_t find_change(std::string_view text, std::size_t from) const override {
    std::size_t last = from;  // a composition may take the character before it along
    for (std::size_t at = from; at < text.size();) {
      std::size_t next = at + 1;
      if (static_cast<unsigned char>(text[at]) >= 0x80) {
        next = at;
        if (!is_plain(next_character(text, next))) return composes_ ? last : at;
      }
      last = at;
      at = next;
    }
    return text.size();
  }

  std::size_t change(std::size_t at, Output& output) const override {
    const std::string_view text = output.text();
    std::vector<FormCharacter> made;
    std::size_t end = at;
    for (std::size_t next = at; end < text.size(); end = next) {
      const char32_t c = next_character(text, next);
      if (is_plain(c) && end > at) break;
      decompose(c, made);
    }
    sort_marks(made);
    if (composes_) compose(made);
    CountedChanges<Output> changes(output, at);
    for (const FormCharacter& character : made) changes.put(character.counted);
    return end;
  }

 private:
  bool is_plain(char32_t c) const {
    const CharacterClass is = table_[c];
    return !is.has(flags_) && is.combining_class() == 0;
  }

  void decompose(char32_t c, std::vector<FormCharacter>& out) const {
    const auto parts = forms_.decomposition(c, compatibly_);
    if (parts.empty()) out.push_back({{c, 0}, table_[c].combining_class()});
    for (std::size_t i = 0; i < parts.size(); ++i) {
      out.push_back({{parts[i], i > 0}, table_[parts[i]].combining_class()});
    }
  }

  // Marks between two starters by combining class, those of one class as they stand.
  static void sort_marks(std::vector<FormCharacter>& characters) {
    const auto is_mark = [](const FormCharacter& character) { return character.combining_class != 0; };
    for (auto begin = characters.begin(); begin != characters.end();) {
      begin = std::find_if(begin, characters.end(), is_mark);
      const auto end = std::find_if_not(begin, characters.end(), is_mark);
      std::stable_sort(begin, end, [](const FormCharacter& a, const FormCharacter& b) {
        return a.combining_class < b.combining_class;
      });
      begin = end;
    }
  }

  void compose(std::vector<FormCharacter>& characters) const {
    constexpr std::size_t kNone = ~std::size_t{0};
    std::size_t starter = kNone, end = 0;
    int last_class = -1;  // of what stands between the starter and the next character; -1: nothing
    for (const FormCharacter& next : characters) {
      const bool is_seen = starter != kNone && last_class < static_cast<int>(next.combining_class);
      if (is_seen) {
        CountedCharacter& first = characters[starter].counted;
        if (const char32_t both = forms_.composition(first.character, next.counted.character)) {
          first = {both, first.change + next.counted.change - 1};
          continue;
        }
      }
      if (next.combining_class == 0) {
        starter = end;
        last_class = -1;
      } else {
        last_class = next.combining_class;
      }
      characters[end++] = next;
    }
    characters.resize(end);
  }

  const CharacterTable& table_ = CharacterTable::get();
  const NormalForms& forms_ = NormalForms::get();
  bool composes_, compatibly_;
  std::uint32_t flags_ = 0;
};

}  // namespace

namespace normalizers {

NormalizerPtr nfc() { return std::make_shared<FormNormalizer>(true, false); }
NormalizerPtr nfd() { return std::make_shared<FormNormalizer>(false, false); }
NormalizerPtr nfkc() { return std::make_shared<FormNormalizer>(true, true); }
NormalizerPtr nfkd() { return std::make_shared<FormNormalizer>(false, true); }

}  // namespace normalizers
}  // namespace keel
