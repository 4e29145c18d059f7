#pragma once
// A tokenizer made of components, as tokenizer.json describes it.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tokenizers/added_tokens.h"
#include "keel/tokenizers/decoder.h"
#include "keel/tokenizers/normalizer.h"
#include "keel/tokenizers/post_processor.h"
#include "keel/tokenizers/pre_tokenizer.h"
#include "keel/tokenizers/token_model.h"
#include "keel/tokenizers/tokenizer.h"

namespace keel {

// Null components do nothing.
struct PipelineParts {
  std::string name = "pipeline";  // the kind of model: "bpe", "word_piece", "word_level", "unigram"
  AddedTokens added = AddedTokens({}, nullptr);
  NormalizerPtr normalizer = {};
  PreTokenizerPtr pre_tokenizer = {};
  TokenModelPtr model = {};
  PostProcessorPtr post_processor = {};
  DecoderPtr decoder = {};
  std::optional<Truncation> truncation = {};  // what the file asks for
  std::optional<Padding> padding = {};
  std::string json = {};  // the file that all of it was read from
};

class Pipeline final : public Tokenizer {
 public:
  explicit Pipeline(PipelineParts parts);

  std::string_view name() const override { return parts_.name; }
  std::int64_t vocabulary_size() const override { return vocabulary_size_; }
  std::vector<std::uint32_t> encode(std::string_view text) const override;
  Encoding encode(const TextPair& text, const EncodeOptions& options) const override;
  std::size_t last_border(std::string_view text) const override;
  std::optional<Padding> file_padding() const override { return parts_.padding; }
  std::string decode(std::span<const std::uint32_t> tokens, bool skip_specials = false) const override;
  std::optional<std::string> token_text(std::uint32_t token) const override;
  std::optional<std::uint32_t> token_of(std::string_view text) const override;
  std::string to_json() const override { return parts_.json; }
  const PipelineParts& parts() const { return parts_; }

 private:
  void cut(Pieces& pieces) const;
  Encoding encode_one(std::string_view text, std::uint32_t type_id) const;

  PipelineParts parts_;
  std::int64_t vocabulary_size_ = 0;  // with the added tokens
  bool has_borders_ = false;          // no part of it looks across the end of a line
};

}  // namespace keel
