#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/tokenizers/tokenizer_files.h"

#ifdef KEEL_HAVE_SENTENCEPIECE
#include <sentencepiece_processor.h>

#include <exception>
#include <limits>

#include "keel/runtime/json.h"
#include "keel/tokenizers/base64.h"
#include "keel/tokenizers/normalizer.h"
#include "keel/tokenizers/post_processor.h"
#include "keel/tokenizers/valid_text.h"

namespace sentencepiece::logging {
void SetMinLogLevel(int level);  // NOLINT: the library has it, but no header of its does
}

namespace keel {
namespace {

constexpr std::string_view kWordBegin = "\xe2\x96\x81";  // the character that stands for a space

// Reads a message of protocol buffers: calls field(number, bytes) for each field of bytes. False where it is malformed.
template <class F>
bool for_each_field(std::string_view message, F&& field) {
  const auto number = [&]() -> std::optional<std::uint64_t> {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !message.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(message.front());
      message.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  };
  while (!message.empty()) {
    const auto key = number();
    if (!key) return false;
    const auto kind = *key & 7;
    std::optional<std::uint64_t> size = kind == 1 ? 8 : kind == 5 ? 4 : 0;
    if (kind == 0 ? !number() : kind == 2 ? !(size = number()) : kind != 1 && kind != 5) return false;
    if (*size > message.size()) return false;
    if (kind == 2) field(*key >> 3, message.substr(0, static_cast<std::size_t>(*size)));
    message.remove_prefix(static_cast<std::size_t>(*size));
  }
  return true;
}

// The library trusts the tables of a model's normalizers, so they are checked before it reads them.
void check_character_maps(std::string_view model) {
  constexpr std::uint64_t kNormalizer = 3, kDenormalizer = 5, kCharacterMap = 2;
  bool holds = true;
  holds &= for_each_field(model, [&](std::uint64_t field, std::string_view specification) {
    if (field != kNormalizer && field != kDenormalizer) return;
    holds &= for_each_field(specification, [&](std::uint64_t inner, std::string_view map) {
      if (inner == kCharacterMap && !map.empty()) (void)normalizers::precompiled(map);
    });
  });
  KEEL_CHECK(holds, "it is no model of SentencePiece: its fields do not end where they should");
}

class SentencePiece final : public Tokenizer {
 public:
  explicit SentencePiece(std::string model) : model_(std::move(model)) {
    check_character_maps(model_);
    sentencepiece::logging::SetMinLogLevel(kFatalAlone);
    try {
      check(processor_.LoadFromSerializedProto(model_), "it is no model of SentencePiece");
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {  // of what the library builds its tables with
      throw Error(concat("it is no model of SentencePiece: ", error.what()));
    }
    KEEL_CHECK(processor_.GetPieceSize() > 0, "the model has no tokens");
  }

  std::string_view name() const override { return "sentencepiece"; }
  std::int64_t vocabulary_size() const override { return processor_.GetPieceSize(); }

  std::vector<std::uint32_t> encode(std::string_view text) const override {
    std::string storage;
    std::vector<int> ids;
    check(processor_.Encode(valid_utf8(text, storage), &ids), "this text cannot be encoded");
    return {ids.begin(), ids.end()};
  }

  Encoding encode(const TextPair& text, const EncodeOptions& options) const override {
    std::string storage, second_storage;
    Encoding first = encode_one(valid_utf8(text.first, storage), 0), second;
    if (text.second) second = encode_one(valid_utf8(*text.second, second_storage), 1);
    Encoding* const pair = text.second ? &second : nullptr;
    if (options.truncation) truncate(first, pair, 0, *options.truncation);
    return post_process(nullptr, text, std::move(first), pair, options.specials);
  }

  // Its normalizer looks at whole texts.
  std::size_t last_border(std::string_view) const override { return 0; }

  std::string decode(std::span<const std::uint32_t> tokens, bool skip_specials) const override {
    std::vector<int> ids;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      KEEL_CHECK(tokens[i] < static_cast<std::uint32_t>(vocabulary_size()), "token ", tokens[i], " at position ", i,
                 " is none of the vocabulary's ", vocabulary_size());
      const auto id = static_cast<int>(tokens[i]);
      if (!skip_specials || !processor_.IsControl(id)) ids.push_back(id);
    }
    std::string text;
    check(processor_.Decode(ids, &text), "these tokens cannot be decoded");
    return text;
  }

  std::optional<std::string> token_text(std::uint32_t token) const override {
    if (token >= static_cast<std::uint32_t>(vocabulary_size())) return std::nullopt;
    return processor_.IdToPiece(static_cast<int>(token));
  }
  std::optional<std::uint32_t> token_of(std::string_view text) const override {
    const int id = processor_.PieceToId(text);  // the unknown token's where there is none
    if (id < 0 || id >= vocabulary_size() || processor_.IdToPiece(id) != text) return std::nullopt;
    return static_cast<std::uint32_t>(id);
  }
  std::string to_json() const override {
    return Json{{"format", "keel tokenizer"}, {"version", 1}, {"type", name()}, {"model", encode_base64(model_)}}
        .dump();
  }

 private:
  static constexpr int kFatalAlone = 3;  // of its levels of messages

  static void check(const sentencepiece::util::Status& status, std::string_view what) {
    KEEL_CHECK(status.ok(), what, ": ", status.message());
  }

  Encoding encode_one(std::string_view text, std::uint32_t type_id) const {
    KEEL_CHECK(text.size() < std::numeric_limits<std::uint32_t>::max(), "a text of ", text.size(),
               " bytes is too long to be encoded at once: cut it into documents");
    sentencepiece::ImmutableSentencePieceText pieces;
    check(processor_.Encode(text, pieces.mutable_proto()), "this text cannot be encoded");
    Encoding encoding;
    encoding.reserve(pieces.pieces_size());
    std::int32_t word = -1;
    for (std::size_t i = 0; i < pieces.pieces_size(); ++i) {
      const auto piece = pieces.pieces(static_cast<int>(i));
      if (i == 0 || piece.piece().starts_with(kWordBegin)) ++word;
      encoding.add(piece.id(), type_id, {piece.begin(), piece.end()}, word, static_cast<std::int32_t>(type_id));
    }
    return encoding;
  }

  std::string model_;
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

TokenizerPtr make_sentence_piece(std::string model) { return std::make_shared<const SentencePiece>(std::move(model)); }

}  // namespace keel

#else

namespace keel {

TokenizerPtr make_sentence_piece(std::string) {
  throw Error(
      "models of SentencePiece are read by its library, without which this program was built: install it and "
      "configure keel again, or convert the model to tokenizer.json",
      ErrorKind::unsupported);
}

}  // namespace keel

#endif

namespace keel {

TokenizerPtr read_sentence_piece(const std::string& path) {
  std::string model = read_text_file(path);
  try {
    return make_sentence_piece(std::move(model));
  } catch (const Error& error) { throw Error(concat(path, ": "), error); }
}

}  // namespace keel
