#include "keel/tokenizers/train_bpe.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <unordered_map>

#include "keel/runtime/error.h"
#include "keel/runtime/parallel.h"
#include "keel/runtime/utf8.h"
#include "keel/tokenizers/byte_characters.h"
#include "keel/tokenizers/count_words.h"
#include "keel/tokenizers/merge_counts.h"
#include "keel/tokenizers/text_hash.h"

namespace keel {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 18;  // of texts that one thread counts at once
constexpr std::size_t kBatchBytes = std::size_t{1} << 24;  // that wait before they are counted
constexpr std::size_t kShards = 16;                        // of the words, by hash: each has one thread

std::size_t shard_of(std::uint64_t hash) { return hash >> 60; }

// Tokens by text; a text is a token once.
class TokenList {
 public:
  // The token of this text, a new one where there is none.
  std::uint32_t token(const std::string& text) {
    const auto [found, is_new] = numbers_.try_emplace(text, static_cast<std::uint32_t>(texts_.size()));
    if (is_new) texts_.push_back(text);
    return found->second;
  }
  const std::string& text(std::uint32_t token) const { return texts_[token]; }
  std::int64_t size() const { return static_cast<std::int64_t>(texts_.size()); }
  std::vector<std::string> take() { return std::move(texts_); }

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<std::string> texts_;
};

template <class F>
void for_each_character(std::string_view text, const F& f) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint character = decode_utf8(text, at);
    KEEL_CHECK(character.bytes > 0, "training of BPE: byte ", at, " of a piece is no valid UTF-8");
    f(character.value);
    at += character.bytes;
  }
}

}  // namespace

struct BpeTrainer::State {
  Context context;
  PreTokenizerPtr pre_tokenizer;
  BpeTraining options;
  std::string waiting;             // texts that are not counted yet
  std::vector<std::size_t> ends;   // of each
  std::vector<WordCounts> counts;  // kShards

  void count_waiting();
  WordCounts count_chunk(std::size_t first_text, std::size_t last_text) const;
  std::vector<char32_t> alphabet() const;
  void add_words(MergeCounts& merging, TokenList& tokens) const;
};

WordCounts BpeTrainer::State::count_chunk(std::size_t first_text, std::size_t last_text) const {
  WordCounts words;
  Pieces pieces;
  for (std::size_t i = first_text; i < last_text; ++i) {
    const std::size_t begin = i == 0 ? 0 : ends[i - 1];
    pieces.reset(std::string_view(waiting).substr(begin, ends[i] - begin), false);
    if (pre_tokenizer) pre_tokenizer->cut(pieces);
    for (const Pieces::Piece& piece : pieces.pieces()) {
      const std::string_view text = pieces.text(piece);
      words.add(text, text_hash(text), 1);
    }
  }
  return words;
}

void BpeTrainer::State::count_waiting() {
  std::vector<std::size_t> borders{0};  // of chunks, in texts
  std::size_t begin = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (ends[i] - begin < kChunkBytes && i + 1 < ends.size()) continue;
    borders.push_back(i + 1);
    begin = ends[i];
  }
  std::vector<WordCounts> chunks(borders.size() - 1);
  parallel_for(context, static_cast<std::int64_t>(chunks.size()), 1, [&](std::int64_t first, std::int64_t last) {
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i)
      chunks[i] = count_chunk(borders[i], borders[i + 1]);
  });
  parallel_for(context, kShards, 1, [&](std::int64_t first, std::int64_t last) {
    for (const WordCounts& chunk : chunks)
      for (const WordCounts::Word& word : chunk.words()) {
        const auto shard = static_cast<std::int64_t>(shard_of(word.hash));
        if (shard >= first && shard < last)
          counts[static_cast<std::size_t>(shard)].add(chunk.text(word), word.hash, word.count);
      }
  });
  waiting.clear();
  ends.clear();
}

// All characters of the words, and those of bytes where asked for, in their order.
std::vector<char32_t> BpeTrainer::State::alphabet() const {
  std::vector<char32_t> characters;
  std::vector<bool> is_there(0x110000);
  const auto add = [&](char32_t character) {
    if (!is_there[character]) characters.push_back(character);
    is_there[character] = true;
  };
  if (options.all_bytes)
    for (unsigned byte = 0; byte < 256; ++byte) add(ByteCharacters::character(static_cast<unsigned char>(byte)));
  for (const WordCounts& shard : counts)
    for (const WordCounts::Word& word : shard.words()) for_each_character(shard.text(word), add);
  std::sort(characters.begin(), characters.end());
  return characters;
}

void BpeTrainer::State::add_words(MergeCounts& merging, TokenList& tokens) const {
  std::unordered_map<char32_t, std::uint32_t> numbers;
  for (const char32_t character : alphabet()) {
    std::string text;
    append_utf8(text, character);
    numbers[character] = tokens.token(text);
  }
  std::vector<std::uint32_t> word;
  for (const WordCounts& shard : counts)
    for (const WordCounts::Word& counted : shard.words()) {
      word.clear();
      for_each_character(shard.text(counted), [&](char32_t character) { word.push_back(numbers.at(character)); });
      if (word.size() > 1) merging.add_word(word, counted.count);
    }
  merging.begin(std::vector<std::int64_t>(static_cast<std::size_t>(tokens.size()), 1));
}

BpeTrainer::BpeTrainer(const Context& context, PreTokenizerPtr pre_tokenizer, BpeTraining options)
    : state_(std::make_unique<State>()) {
  KEEL_CHECK(options.vocabulary_size >= 0 && options.vocabulary_size <= std::numeric_limits<std::int32_t>::max(),
             "training of BPE: a vocabulary of ", options.vocabulary_size, " tokens; 0 to 2^31 - 1 are possible");
  KEEL_CHECK(options.longest_token == 0 || options.longest_token >= 2, "training of BPE: the longest token has ",
             options.longest_token, " characters; 0 (any) or at least 2");
  state_->context = context;
  state_->pre_tokenizer = std::move(pre_tokenizer);
  state_->options = std::move(options);
  state_->counts.resize(kShards);
}

BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::feed(std::string_view text) {
  state_->waiting += text;
  state_->ends.push_back(state_->waiting.size());
  if (state_->waiting.size() >= kBatchBytes) state_->count_waiting();
}

TrainedBpe BpeTrainer::train(const std::function<void(std::int64_t, std::int64_t)>& progress) {
  state_->count_waiting();
  const BpeTraining& options = state_->options;
  TokenList tokens;
  for (const std::string& special : options.specials) tokens.token(special);
  MergeCounts merging(options.longest_token);
  state_->add_words(merging, tokens);
  TrainedBpe trained;
  while (tokens.size() < options.vocabulary_size) {
    const MergeCounts::Top top = merging.top();
    if (top.count < std::max<std::int64_t>(options.min_frequency, 1)) break;
    trained.merges.emplace_back(tokens.text(top.first), tokens.text(top.second));
    merging.merge(tokens.token(tokens.text(top.first) + tokens.text(top.second)));
    if (progress) progress(tokens.size(), options.vocabulary_size);
  }
  trained.tokens = tokens.take();
  return trained;
}

}  // namespace keel
