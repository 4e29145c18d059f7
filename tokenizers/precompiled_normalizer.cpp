// SentencePiece's map of characters: a double array (Aoe 1989, as Darts-clone stores it) from texts to places in a list
// of replacements that end by a zero byte.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/utf8.h"
#include "keel/tokenizers/counted_changes.h"
#include "keel/tokenizers/normalizer.h"
#include "keel/tokenizers/rewriting_normalizer.h"
#include "keel/tokenizers/two_stage.h"
#include "keel/tokenizers/unicode.h"

namespace keel {
namespace {

class CharacterMap {
 public:
  explicit CharacterMap(std::string_view bytes) {
    constexpr std::size_t kHead = 4;
    const auto word = [&](std::size_t at) {
      std::uint32_t value = 0;
      for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
      return value;
    };
    const std::size_t trie = bytes.size() < kHead ? 0 : word(0);
    if (trie == 0 || trie % 4 != 0 || trie > bytes.size() - kHead) {
      throw Error(concat("a precompiled character map of ", bytes.size(), " bytes says that its trie has ", trie,
                         ": it is cut off or none"));
    }
    for (std::size_t at = 0; at < trie; at += 4) units_.push_back(word(kHead + at));
    replacements_ = bytes.substr(kHead + trie);
    if (const std::size_t bad = find_bad_utf8(replacements_); bad != std::string_view::npos) {
      throw Error(concat("a precompiled character map has no UTF-8 at byte ", kHead + trie + bad));
    }
  }

  // The replacement of the shortest text in the map that `key` begins with: that it stands for the whole key is how the
  // Tokenizers library reads it. None: the map has no such text, or one whose replacement lies outside.
  std::optional<std::string_view> find(std::string_view key) const {
    std::size_t node = offset(units_[0]);
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte == 0) break;
      node ^= byte;
      if (node >= units_.size() || label(units_[node]) != byte) break;
      const bool has_leaf = (units_[node] >> 8 & 1) != 0;
      node ^= offset(units_[node]);
      if (has_leaf) return node < units_.size() ? replacement(units_[node] & 0x7fffffff) : std::nullopt;
    }
    return std::nullopt;
  }

 private:
  static std::size_t offset(std::uint32_t unit) { return std::size_t{unit >> 10} << ((unit & 1u << 9) >> 6); }
  static std::uint32_t label(std::uint32_t unit) { return unit & (1u << 31 | 0xff); }
  std::optional<std::string_view> replacement(std::size_t at) const {
    const bool begins = at < replacements_.size() && (static_cast<unsigned char>(replacements_[at]) & 0xc0) != 0x80;
    if (!begins) return std::nullopt;
    const std::size_t end = std::min(replacements_.find('\0', at), replacements_.size());
    return std::string_view(replacements_).substr(at, end - at);
  }

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

int count_characters(std::string_view text) {
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
  return static_cast<int>(std::ranges::count_if(text, begins));
}

// Counts replacements as the library does: what a text of its map has gained are its last characters, what it has lost
// went with the character before. In front of everything, where there is none, a loss is not counted.
template <class Output>
class MappedChanges {
 public:
  MappedChanges(Output& output, std::size_t at) : changes_(output, at), is_front_(at == 0) {}

  void same(char32_t c) { put({c, 0}); }
  void replace(std::string_view old, std::string_view made) {
    const int before = count_characters(old), after = count_characters(made);
    int i = 0;
    for (std::size_t at = 0; at < made.size(); ++i) put({next_character(made, at), i >= before});
    if (after >= before) return;
    if (last_) {
      last_->change -= before - after;
    } else if (!is_front_) {
      changes_.skip(before - after);
    }
  }
  void flush() {
    if (last_) changes_.put(*last_);
    last_.reset();
  }

 private:
  void put(const CountedCharacter& next) {
    flush();
    last_ = next;
    is_front_ = false;
  }

  CountedChanges<Output> changes_;
  std::optional<CountedCharacter> last_;
  bool is_front_;  // nothing stands before
};

class PrecompiledNormalizer final : public RewritingNormalizer {
 public:
  explicit PrecompiledNormalizer(std::string_view bytes)
      : map_(bytes), is_mapped_([this](char32_t c) {
          std::string text;
          if (c < 0xd800 || c > 0xdfff) append_utf8(text, c);
          return static_cast<std::uint8_t>(map_.find(text).has_value());
        }) {}

 protected:
  std::size_t find_change(std::string_view text, std::size_t from) const override {
    for (std::size_t at = from; at < text.size();) {
      const auto byte = static_cast<unsigned char>(text[at]);
      if (byte < 0x80 && byte != '\r' && at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) < 0x80) {
        if (is_mapped_[byte] != 0) return at;
        ++at;
        continue;
      }
      const std::size_t end = cluster_end(text, at);
      if (is_changed(text.substr(at, end - at))) return at;
      at = end;
    }
    return text.size();
  }

  std::size_t change(std::size_t at, Output& output) const override {
    const std::string_view text = output.text();
    MappedChanges<Output> changes(output, at);
    // A loss that is not counted moves the origins of all that follows.
    const bool goes_on = at == 0 && output.keeps_origins() && loses_front(text);
    std::size_t end = at;
    while (end < text.size()) {
      const std::size_t next = cluster_end(text, end);
      const std::string_view cluster = text.substr(end, next - end);
      if (!goes_on && end > at && !is_changed(cluster)) break;
      map_cluster(cluster, changes);
      end = next;
    }
    changes.flush();
    return end;
  }

 private:
  // Longer clusters are looked for character by character.
  static constexpr std::size_t kLongestCluster = 5;

  std::optional<std::string_view> find_cluster(std::string_view cluster) const {
    return cluster.size() <= kLongestCluster ? map_.find(cluster) : std::nullopt;
  }

  bool is_changed(std::string_view cluster) const {
    bool has_mapped = false;
    std::size_t at = 0;
    while (at < cluster.size()) has_mapped |= is_mapped_[next_character(cluster, at)] != 0;
    return has_mapped || find_cluster(cluster);
  }

  bool loses_front(std::string_view text) const {
    const std::string_view cluster = text.substr(0, cluster_end(text, 0));
    if (const auto whole = find_cluster(cluster)) return whole->empty();
    std::size_t end = 0;
    if (is_mapped_[next_character(cluster, end)] == 0) return false;
    const auto made = map_.find(cluster.substr(0, end));
    return made && made->empty();
  }

  template <class Changes>
  void map_cluster(std::string_view cluster, Changes& changes) const {
    if (const auto whole = find_cluster(cluster)) return changes.replace(cluster, *whole);
    for (std::size_t at = 0; at < cluster.size();) {
      const std::size_t begin = at;
      const char32_t c = next_character(cluster, at);
      const std::string_view part = cluster.substr(begin, at - begin);
      const auto made = is_mapped_[c] != 0 ? map_.find(part) : std::nullopt;
      if (made) {
        changes.replace(part, *made);
      } else {
        changes.same(c);
      }
    }
  }

  // The grapheme cluster (Unicode's annex 29) that begins at `at`.
  std::size_t cluster_end(std::string_view text, std::size_t at) const {
    std::size_t end = at;
    char32_t last = next_character(text, end);
    bool joins = table_[last].joins();
    std::int32_t state = 0;
    for (std::size_t next = end; end < text.size(); end = next) {
      const char32_t c = next_character(text, next);
      const bool also_joins = table_[c].joins();
      if ((!joins && !also_joins) || breaks_grapheme(last, c, state)) break;
      last = c;
      joins = also_joins;
    }
    return end;
  }

  CharacterMap map_;
  TwoStage<std::uint8_t> is_mapped_;
  const CharacterTable& table_ = CharacterTable::get();
};

}  // namespace

namespace normalizers {

NormalizerPtr precompiled(std::string_view charsmap) { return std::make_shared<PrecompiledNormalizer>(charsmap); }

}  // namespace normalizers
}  // namespace keel
