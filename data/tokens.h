#pragma once
// A read-only sequence of tokens, in memory or in a file.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "keel/runtime/file.h"

namespace keel {

// 2 where every token below `vocabulary_size` fits into 16 bits, else 4.
int token_bytes(std::int64_t vocabulary_size);

// The largest vocabulary: tokens are i32 in a batch.
inline constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 31;

// A value handle: copies and slices share the memory, or the file. Tokens are 2 or 4 bytes each; one that does not
// belong to the vocabulary is an Error, when it is read, that names its position in the source.
class Tokens {
 public:
  Tokens() = default;  // no tokens
  // Copies the tokens, in as few bytes as the vocabulary allows, and checks them. `source` names them in messages.
  Tokens(std::span<const std::uint32_t> values, std::int64_t vocabulary_size, std::string source);
  // The `size` tokens of `bytes` (2 or 4) bytes each from `offset` of the file on, which are read when they are asked
  // for.
  Tokens(std::shared_ptr<const InputFile> file, std::uint64_t offset, std::int64_t size, int bytes,
         std::int64_t vocabulary_size);

  // All tokens of several sequences, one after the other: shards of one corpus. The vocabulary is the largest of
  // theirs.
  static Tokens joined(std::vector<Tokens> shards);

  std::int64_t size() const { return size_; }
  std::int64_t vocabulary_size() const { return vocabulary_size_; }
  std::uint32_t operator[](std::int64_t i) const;
  // The tokens [begin, end).
  Tokens slice(std::int64_t begin, std::int64_t end) const;
  // The tokens from `begin` on, as many as `out` holds.
  void copy(std::int64_t begin, std::span<std::int32_t> out) const;
  // Reads every token once.
  void check() const;

 private:
  struct Source {
    std::shared_ptr<const void> owner = {};  // of `memory`
    const void* memory = nullptr;            // its first token, where there is no file
    std::shared_ptr<const InputFile> file = {};
    std::uint64_t offset = 0;  // of the first token in the file
    std::string name = {};
    std::vector<Tokens> shards = {};        // instead of both
    std::vector<std::int64_t> begins = {};  // of each shard
  };
  // Calls f(shard, first token in it, how many, how many before them) for each shard that the tokens lie in.
  template <class F>
  void visit_shards(std::int64_t begin, std::int64_t count, F&& f) const;
  // Calls f with the tokens from `begin` on, piece by piece, as spans of their own type, and the place of each.
  template <class F>
  void visit(std::int64_t begin, std::int64_t count, F&& f) const;

  std::shared_ptr<const Source> source_;
  std::int64_t begin_ = 0;
  std::int64_t size_ = 0;
  std::int64_t vocabulary_size_ = 0;
  int bytes_ = 2;
};

}  // namespace keel
