#pragma once
// Models: the tokens of one piece of text.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/tokenizers/text_span.h"
#include "keel/tokenizers/vocabulary.h"

namespace keel {

struct PieceToken {
  std::uint32_t id = 0;
  TextSpan bytes;  // of the piece
  bool operator==(const PieceToken&) const = default;
};

// Does not change once made, but for memories of words that it has seen, which change nothing in its answers; any
// number of threads may use it at once.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  virtual const Vocabulary& vocabulary() const = 0;
  // Appends the tokens of one piece, valid UTF-8 that is not empty. What has no token and no unknown token is an Error
  // or is left out, as the Tokenizers library does it for this kind of model.
  virtual void tokenize(std::string_view piece, std::vector<PieceToken>& out) const = 0;
  // The ids alone, which is what a corpus needs: the fast way.
  virtual void append_ids(std::string_view piece, std::vector<std::uint32_t>& out) const = 0;
};
using TokenModelPtr = std::shared_ptr<const TokenModel>;

namespace token_models {

struct BpeOptions {
  std::optional<std::string> unknown = {};
  std::optional<std::string> continuing_prefix = {}, end_suffix = {};
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
};
// Merges in order of rank; of a pair that is there twice, the later place counts. One that names no token is an Error
// with its place.
TokenModelPtr bpe(Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
                  const BpeOptions& options);

struct WordPieceOptions {
  std::string unknown = "[UNK]";
  std::string continuing_prefix = "##";
  std::int64_t longest_word = 100;  // in characters; a longer one is unknown
};
TokenModelPtr word_piece(Vocabulary vocabulary, const WordPieceOptions& options);

// Every piece is a token or the unknown one.
TokenModelPtr word_level(Vocabulary vocabulary, const std::string& unknown);

// The likeliest cut by the tokens' log-probabilities, whose order is their number (Kudo 2018).
struct UnigramOptions {
  std::optional<std::uint32_t> unknown = {};
  bool byte_fallback = false;
};
TokenModelPtr unigram(const std::vector<std::pair<std::string, double>>& tokens, const UnigramOptions& options);

}  // namespace token_models
}  // namespace keel
