// Byte-pair encoding: the pair of lowest rank is merged until none is left (Sennrich, Haddow, Birch, "Neural Machine
// Translation of Rare Words with Subword Units", ACL 2016).

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/utf8.h"
#include "keel/tokenizers/byte_tokens.h"
#include "keel/tokenizers/merge_table.h"
#include "keel/tokenizers/text_hash.h"
#include "keel/tokenizers/token_model.h"
#include "keel/tokenizers/word_memory.h"

namespace keel {
namespace {

constexpr char32_t kQuickCharacters = 0x800;  // those of one byte or two, which byte-level vocabularies consist of
constexpr std::size_t kShortPiece = 96;       // symbols up to which a scan for each merge is quicker than a queue

// A token of the piece, and the merge with the next one.
struct BpeSymbol {
  std::uint32_t token;
  std::uint32_t bytes;
  std::uint32_t rank;    // MergeTable::kNoRank: they are not merged
  std::uint32_t merged;  // the token that they become
  void set(MergeTable::Merge merge) {
    rank = merge.rank;
    merged = merge.token;
  }
};

// Symbols of a piece, without an allocation for short ones.
class BpeSymbols {
 public:
  void add(std::uint32_t token, std::uint32_t bytes) {
    const BpeSymbol symbol{token, bytes, MergeTable::kNoRank, 0};
    if (size_ < kShortPiece) {
      few_[size_] = symbol;
    } else {
      if (size_ == kShortPiece) many_.assign(few_.begin(), few_.end());
      many_.push_back(symbol);
    }
    ++size_;
  }
  bool is_short() const { return size_ <= kShortPiece; }
  void shorten(std::size_t size) {
    size_ = size;
    if (!many_.empty()) many_.resize(size);
  }
  std::span<BpeSymbol> all() { return many_.empty() ? std::span(few_.data(), size_) : std::span(many_); }

 private:
  std::array<BpeSymbol, kShortPiece> few_;
  std::vector<BpeSymbol> many_;  // all of them, once there are too many
  std::size_t size_ = 0;
};

// Scans for the lowest rank, of equal ones the first.
std::size_t merge_by_scan(std::span<BpeSymbol> symbols, const MergeTable& merges) {
  std::size_t size = symbols.size();
  while (size > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < size; ++i)
      if (symbols[i].rank < symbols[best].rank) best = i;
    BpeSymbol& merged = symbols[best];
    if (merged.rank == MergeTable::kNoRank) break;
    merged.token = merged.merged;
    merged.bytes += symbols[best + 1].bytes;
    std::copy(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 2,
              symbols.begin() + static_cast<std::ptrdiff_t>(size), &merged + 1);
    --size;
    merged.set(best + 1 < size ? merges.find(merged.token, symbols[best + 1].token) : MergeTable::Merge{});
    if (best > 0) symbols[best - 1].set(merges.find(symbols[best - 1].token, merged.token));
  }
  return size;
}

// A queue of ranks and places, and symbols that are linked. What the queue says of a pair that has changed is passed
// over.
std::size_t merge_by_queue(std::span<BpeSymbol> symbols, const MergeTable& merges) {
  const std::size_t size = symbols.size();
  constexpr std::uint32_t kEnd = ~std::uint32_t{0};
  std::vector<std::uint32_t> before(size), behind(size);
  std::vector<std::uint64_t> entries;
  const auto entry = [&](std::size_t i) { return std::uint64_t{symbols[i].rank} << 32 | i; };
  for (std::size_t i = 0; i < size; ++i) {
    before[i] = i == 0 ? kEnd : static_cast<std::uint32_t>(i - 1);
    behind[i] = i + 1 == size ? kEnd : static_cast<std::uint32_t>(i + 1);
    if (symbols[i].rank != MergeTable::kNoRank) entries.push_back(entry(i));
  }
  std::priority_queue queue(std::greater<>{}, std::move(entries));
  const auto look_up = [&](std::uint32_t i) {
    symbols[i].set(behind[i] == kEnd ? MergeTable::Merge{} : merges.find(symbols[i].token, symbols[behind[i]].token));
    if (symbols[i].rank != MergeTable::kNoRank) queue.push(entry(i));
  };
  while (!queue.empty()) {
    const std::uint64_t top = queue.top();
    queue.pop();
    const auto i = static_cast<std::uint32_t>(top);
    BpeSymbol& symbol = symbols[i];
    if (symbol.rank != top >> 32) continue;
    BpeSymbol& next = symbols[behind[i]];
    symbol.token = symbol.merged;
    symbol.bytes += next.bytes;
    next.rank = MergeTable::kNoRank;
    behind[i] = behind[behind[i]];
    if (behind[i] != kEnd) before[behind[i]] = i;
    look_up(i);
    if (before[i] != kEnd) look_up(before[i]);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < size && i != kEnd; i = behind[i]) symbols[kept++] = symbols[i];
  return kept;
}

class Bpe final : public TokenModel {
 public:
  Bpe(Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
      const token_models::BpeOptions& options)
      : vocabulary_(std::move(vocabulary)),
        options_(options),
        unknown_(options.unknown ? vocabulary_.find(*options.unknown) : Vocabulary::kNone),
        merges_(merges.size()) {
    if (options_.byte_fallback) bytes_ = byte_tokens(vocabulary_);
    quick_.resize(kQuickCharacters);
    std::string text;
    for (char32_t c = 0; c < kQuickCharacters; ++c) {
      text.clear();
      append_utf8(text, c);
      quick_[c] = vocabulary_.find(text);
    }
    for (std::size_t rank = 0; rank < merges.size(); ++rank) add_merge(merges[rank], static_cast<std::uint32_t>(rank));
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }

  void tokenize(std::string_view piece, std::vector<PieceToken>& out) const override {
    if (const std::uint32_t whole = whole_token(piece); whole != Vocabulary::kNone) {
      out.push_back({whole, {0, static_cast<std::uint32_t>(piece.size())}});
      return;
    }
    BpeSymbols symbols;
    merge(piece, symbols);
    std::uint32_t begin = 0;
    for (const BpeSymbol& symbol : symbols.all()) {
      const auto end = std::min(begin + symbol.bytes, static_cast<std::uint32_t>(piece.size()));
      out.push_back({symbol.token, {begin, end}});
      begin = end;
    }
  }

  void append_ids(std::string_view piece, std::vector<std::uint32_t>& out) const override {
    const std::uint64_t hash = text_hash(piece);
    if (memory_.append(piece, hash, out)) return;
    const std::size_t begin = out.size();
    if (const std::uint32_t whole = whole_token(piece); whole != Vocabulary::kNone) {
      out.push_back(whole);
    } else {
      BpeSymbols symbols;
      merge(piece, symbols);
      for (const BpeSymbol& symbol : symbols.all()) out.push_back(symbol.token);
    }
    memory_.keep(piece, hash, std::span(out).subspan(begin));
  }

 private:
  void add_merge(const std::pair<std::string, std::string>& merge, std::uint32_t rank) {
    const std::string &first = merge.first, &second = merge.second;
    const auto known = [&](const std::string& text) {
      const std::uint32_t token = vocabulary_.find(text);
      KEEL_CHECK(token != Vocabulary::kNone, "BPE: merge ", rank + 1, " (\"", first, "\" and \"", second,
                 "\") needs the token \"", text, "\", which the vocabulary does not have");
      return token;
    };
    const std::size_t prefix = options_.continuing_prefix ? options_.continuing_prefix->size() : 0;
    KEEL_CHECK(second.size() >= prefix, "BPE: merge ", rank + 1, " (\"", first, "\" and \"", second,
               "\"): the second does not begin with the prefix \"", options_.continuing_prefix.value_or(""), "\"");
    const std::uint32_t a = known(first), b = known(second);
    merges_.set(a, b, {rank, known(first + second.substr(prefix))});
  }

  std::uint32_t whole_token(std::string_view piece) const {
    return options_.ignore_merges ? vocabulary_.find(piece) : Vocabulary::kNone;
  }

  std::uint32_t token_of_character(std::string_view bytes) const {
    const CodePoint character = decode_utf8(bytes, 0);
    return character.value < kQuickCharacters ? quick_[character.value] : vocabulary_.find(bytes);
  }

  // The symbols to begin with, one for each character that has a token.
  void split(std::string_view piece, BpeSymbols& symbols) const {
    std::uint32_t unknown_bytes = 0;  // of unknown characters that wait for the next known one
    std::string storage;
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t bytes = std::max<std::size_t>(decode_utf8(piece, at).bytes, 1);
      const std::string_view text = with_affixes(piece, at, bytes, storage);
      const std::uint32_t token = text.size() == bytes ? token_of_character(text) : vocabulary_.find(text);
      at += bytes;
      if (token != Vocabulary::kNone) {
        if (unknown_bytes > 0) symbols.add(unknown_, std::exchange(unknown_bytes, 0));
        symbols.add(token, static_cast<std::uint32_t>(bytes));
        continue;
      }
      if (options_.byte_fallback && has_all_bytes(text)) {
        for (const char byte : text) symbols.add(bytes_[static_cast<unsigned char>(byte)], 1);
        continue;
      }
      if (!options_.unknown) continue;
      KEEL_CHECK(unknown_ != Vocabulary::kNone, "BPE: the unknown token \"", *options_.unknown,
                 "\" is not in the vocabulary, and \"", text, "\" needs it");
      if (unknown_bytes > 0 && !options_.fuse_unknown) symbols.add(unknown_, std::exchange(unknown_bytes, 0));
      unknown_bytes += static_cast<std::uint32_t>(bytes);
    }
    if (unknown_bytes > 0) symbols.add(unknown_, unknown_bytes);
  }

  // A character as the vocabulary spells it where it stands.
  std::string_view with_affixes(std::string_view piece, std::size_t at, std::size_t bytes, std::string& storage) const {
    const bool prefix = at > 0 && options_.continuing_prefix;
    const bool suffix = at + bytes == piece.size() && options_.end_suffix;
    const std::string_view character = piece.substr(at, bytes);
    if (!prefix && !suffix) return character;
    storage.clear();
    if (prefix) storage += *options_.continuing_prefix;
    storage += character;
    if (suffix) storage += *options_.end_suffix;
    return storage;
  }

  bool has_all_bytes(std::string_view text) const {
    return std::all_of(text.begin(), text.end(),
                       [&](char byte) { return bytes_[static_cast<unsigned char>(byte)] != Vocabulary::kNone; });
  }

  void merge(std::string_view piece, BpeSymbols& symbols) const {
    split(piece, symbols);
    const std::span<BpeSymbol> all = symbols.all();
    for (std::size_t i = 0; i + 1 < all.size(); ++i) all[i].set(merges_.find(all[i].token, all[i + 1].token));
    symbols.shorten(symbols.is_short() ? merge_by_scan(all, merges_) : merge_by_queue(all, merges_));
  }

  Vocabulary vocabulary_;
  token_models::BpeOptions options_;
  std::uint32_t unknown_;
  MergeTable merges_;
  std::vector<std::uint32_t> quick_;        // tokens of characters below kQuickCharacters
  std::array<std::uint32_t, 256> bytes_{};  // of byte_fallback
  mutable WordMemory memory_;
};

}  // namespace

TokenModelPtr token_models::bpe(Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
                                const BpeOptions& options) {
  return std::make_shared<Bpe>(std::move(vocabulary), merges, options);
}

}  // namespace keel
