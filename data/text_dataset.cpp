#include "keel/data/text_dataset.h"

#include <filesystem>
#include <span>
#include <utility>

#include "keel/data/gzip.h"
#include "keel/data/token_file.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "keel/tokenizers/plain_tokenizers.h"
#include "keel/tokenizers/tokenizer_files.h"

namespace keel {
namespace {

// Validation is the tail: text of the same document, but none that was seen.
TextDataset split_tokens(const std::string& path, const Tokens& tokens, std::shared_ptr<const Tokenizer> tokenizer,
                         const SplitOptions& split) {
  KEEL_CHECK(split.validation >= 0 && split.validation < 1, "the validation fraction must be in [0, 1), got ",
             split.validation);
  KEEL_CHECK(split.block >= 1, "a block has at least one token, got ", split.block);
  KEEL_CHECK(tokens.size() > 0, "'", path, "' is empty; name a file with at least ", split.block + 1, " tokens");
  const auto train = static_cast<std::int64_t>(static_cast<double>(tokens.size()) * (1 - split.validation));
  const std::int64_t validation = tokens.size() - train;
  KEEL_CHECK(train > split.block, "'", path, "' has ", tokens.size(), " tokens, ", train,
             " of them to train on, but a block of ", split.block, " needs ", split.block + 1,
             "; use a longer text, a smaller block or a smaller validation fraction");
  KEEL_CHECK(split.validation == 0 || validation >= 2, "'", path, "' has ", tokens.size(), " tokens, and ", validation,
             " to validate on are too few: there must be 2; use a longer text or a larger validation fraction");
  return {.train = tokens.slice(0, train),
          .validation = tokens.slice(train, tokens.size()),
          .whole = tokens,
          .tokenizer = std::move(tokenizer)};
}

std::string training_text(const std::string& path) {
  std::string text;
  if (is_gzip(path)) {
    decompress(path, [&](std::string_view piece) { text += piece; });
  } else {
    const InputFile file(path);
    text.resize(file.size());
    file.read(0, std::as_writable_bytes(std::span(text)));
  }
  KEEL_CHECK(!text.empty(), "'", path, "' is empty; name a text to train on");
  KEEL_CHECK(!text.starts_with(kTokenFileMagic), "'", path,
             "' is a token file, not a text; give data.type=tokens where the task has it");
  return text;
}

// Calls f; its Error then names the file.
template <class F>
auto naming(const std::string& path, F&& f) {
  try {
    return f();
  } catch (const Error& error) { throw Error(concat("'", path, "': "), error); }
}

TextDataset encode(const std::string& path, const std::string& text, std::shared_ptr<const Tokenizer> tokenizer,
                   const SplitOptions& split) {
  const auto values = naming(path, [&] { return tokenizer->encode(text); });
  const Tokens tokens(values, tokenizer->vocabulary_size(), path);
  return split_tokens(path, tokens, std::move(tokenizer), split);
}

}  // namespace

TextDataset open_text(const std::string& path, std::shared_ptr<const Tokenizer> tokenizer, const SplitOptions& split) {
  KEEL_CHECK(tokenizer != nullptr, "opening '", path, "' needs a tokenizer");
  return encode(path, training_text(path), std::move(tokenizer), split);
}

TextDataset open_text(const std::string& path, std::string_view tokenizer, const SplitOptions& split) {
  const std::string text = training_text(path);
  return encode(path, text, naming(path, [&] { return find_tokenizer(tokenizer, text); }), split);
}

std::shared_ptr<const Tokenizer> tokenizer_of(const std::string& path, const TokenFile& file) {
  if (file.tokenizer.empty()) return nullptr;
  const std::filesystem::path beside = std::filesystem::path(path).parent_path() / "tokenizer.json";
  if (!std::filesystem::exists(beside)) {
    const ByteTokenizer bytes;
    const bool is_bytes = file.tokenizer == bytes.name() && file.tokens.vocabulary_size() == bytes.vocabulary_size();
    return is_bytes ? std::make_shared<ByteTokenizer>() : nullptr;
  }
  std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(beside.string());
  KEEL_CHECK(tokenizer->name() == file.tokenizer && tokenizer->vocabulary_size() == file.tokens.vocabulary_size(), "'",
             path, "' was made by tokenizer '", file.tokenizer, "' of ", file.tokens.vocabulary_size(),
             " tokens, but '", beside.string(), "' is a '", tokenizer->name(), "' of ", tokenizer->vocabulary_size(),
             "; put the right one there");
  return tokenizer;
}

TextDataset open_tokens(const std::string& path, const SplitOptions& split) {
  const std::vector<std::string> paths = token_files_at(path);
  const TokenFile file = open_token_files(paths);
  TextDataset dataset = split_tokens(path, file.tokens, tokenizer_of(paths.front(), file), split);
  dataset.note = file.note;
  return dataset;
}

}  // namespace keel
