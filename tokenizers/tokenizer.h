#pragma once
// The interface of every tokenizer: text to numbers and back.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/context.h"
#include "keel/runtime/language.h"
#include "keel/tokenizers/encoding.h"

namespace keel {

struct EncodeOptions {
  bool specials = true;                       // those of the tokenizer's template
  std::optional<Truncation> truncation = {};  // in place of what the tokenizer's file asks for
  std::optional<Padding> padding = {};        // of encode_batch(); in place of the file's
};

// Tokens are the numbers from 0 to vocabulary_size() - 1. Tokenizers do not change once made; any number of threads may
// use one at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string_view name() const = 0;
  virtual std::int64_t vocabulary_size() const = 0;

  // The ids alone and without special tokens of a template: what a corpus needs. A text that cannot be expressed is an
  // Error that says where.
  virtual std::vector<std::uint32_t> encode(std::string_view text) const = 0;
  virtual Encoding encode(const TextPair& text, const EncodeOptions& options) const = 0;
  // The texts, on the context's threads, in their order; padded if `options` or the tokenizer's file ask for it.
  std::vector<Encoding> encode_batch(const Context& context, std::span<const TextPair> texts,
                                     const EncodeOptions& options) const;

  virtual std::optional<Padding> file_padding() const { return std::nullopt; }

  // How much of a text may be encoded now, where more of it follows: the tokens of that and those of the rest, one
  // behind the other, are those of the whole. 0: nothing here says where.
  virtual std::size_t last_border(std::string_view text) const = 0;

  // A token outside the vocabulary is an Error that names its position.
  virtual std::string decode(std::span<const std::uint32_t> tokens, bool skip_specials = false) const = 0;
  // The token's text as the vocabulary has it; none: no such token.
  virtual std::optional<std::string> token_text(std::uint32_t token) const = 0;
  virtual std::optional<std::uint32_t> token_of(std::string_view text) const = 0;

  // A JSON object from which parse_tokenizer() (tokenizer_files.h) makes this tokenizer again.
  virtual std::string to_json() const = 0;
  // 32 digits that stand for to_json(), where a message may show them.
  std::string fingerprint() const;
};
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

}  // namespace keel
