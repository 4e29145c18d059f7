// `keel tokenize`: a text as a file of tokens, which runs map instead of reading the text again.

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "bar.h"
#include "commands.h"
#include "keel/data/token_file.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/printable.h"
#include "keel/tokenizers/tokenizer.h"

namespace keel::cli {
namespace {

constexpr const char* kTokenizeFooter = R"(
Examples:
  keel tokenize corpus.txt --out corpus.bin
  keel train c.yaml data.type=tokens data.path=corpus.bin
  keel tokenize corpus.txt --tokenizer character --out data/corpus.bin    and data/tokenizer.json

docs/token-files.md describes the format, and which files of other programs `data.type=tokens` reads.)";

constexpr std::uint64_t kPiece = 1 << 20;  // bytes that are encoded at once

struct TokenizeArguments {
  std::string text, out;
  std::string tokenizer = "byte";
};

// How much of `text` is whole characters, where it may go on: one of UTF-8 has at most three bytes after its first.
std::size_t whole_characters(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(4, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const std::size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return back < length ? text.size() - back : text.size();
  }
  return text.size();
}

// Other tokenizers than bytes are needed to read the tokens again: as tokenizer.json beside them, where another one
// must not be lost.
void save_beside(const std::string& out, const Tokenizer& tokenizer) {
  const std::string path = (std::filesystem::path(out).parent_path() / "tokenizer.json").string();
  if (std::filesystem::exists(path)) {
    KEEL_CHECK(load_tokenizer(path)->to_json() == tokenizer.to_json(), "'", path,
               "' is another tokenizer, which other files there may need; write to a folder of its own");
    return;
  }
  save_tokenizer(path, tokenizer);
}

int run(const TokenizeArguments& arguments) {
  const InputFile file(arguments.text);
  KEEL_CHECK(file.size() > 0, "'", arguments.text, "' is empty; name a text");
  const std::string bytes(ByteTokenizer().name());
  std::shared_ptr<const Tokenizer> tokenizer;
  try {
    tokenizer = make_tokenizer(arguments.tokenizer, arguments.tokenizer == bytes ? "" : read_text_file(arguments.text));
  } catch (const Error& error) { throw Error(concat("'", arguments.text, "': ", error.what()), error.kind()); }

  TokenFileWriter writer(arguments.out, tokenizer->vocabulary_size(), std::string(tokenizer->name()));
  std::int64_t count = 0;
  {
    Bar bar("tokenizing");
    std::string piece;
    for (std::uint64_t done = 0; done < file.size(); done += piece.size()) {
      piece.resize(std::min<std::uint64_t>(kPiece, file.size() - done));
      file.read(done, std::as_writable_bytes(std::span(piece)));
      KEEL_CHECK(done > 0 || !piece.starts_with(kTokenFileMagic), "'", arguments.text, "' is a token file already");
      if (done + piece.size() < file.size()) piece.resize(whole_characters(piece));
      const auto tokens = tokenizer->encode(piece);
      writer.append(tokens);
      count += static_cast<std::int64_t>(tokens.size());
      bar.show(done + piece.size(), file.size());
    }
  }
  if (tokenizer->name() != bytes) save_beside(arguments.out, *tokenizer);
  writer.commit();
  std::cout << printable(arguments.out) << ": " << count << " tokens of " << file.size() << " bytes, vocabulary "
            << tokenizer->vocabulary_size() << '\n';
  return 0;
}

}  // namespace

Command tokenize_command() {
  const auto arguments = std::make_shared<TokenizeArguments>();
  std::string names;
  for (const std::string_view name : tokenizer_names()) names += (names.empty() ? "" : " or ") + std::string(name);
  return {.name = "tokenize",
          .help = "Turn a text into a file of tokens.",
          .positionals = {{"TEXT", "", &arguments->text, "The text.", kRequired}},
          .options = {{"--out", "FILE", &arguments->out, "The file to write.", kRequired},
                      {"--tokenizer", "NAME", &arguments->tokenizer, "What a token is: " + names + "."}},
          .footer = kTokenizeFooter,
          .run = [arguments](const Call&) { return run(*arguments); }};
}

}  // namespace keel::cli
