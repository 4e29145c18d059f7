// `keel tokenize`: texts as files of tokens, which runs map instead of reading the texts again.

#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "bar.h"
#include "commands.h"
#include "keel/data/tokenize_files.h"
#include "keel/runtime/context.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/printable.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "keel/tokenizers/tokenizer_files.h"

namespace keel::cli {
namespace {

constexpr const char* kTokenizeFooter = R"(
Examples:
  keel tokenize corpus.txt --out corpus.bin
  keel train c.yaml data.type=tokens data.path=corpus.bin
  keel tokenize corpus.txt --tokenizer character --out data/corpus.bin    and data/tokenizer.json
  keel tokenize a.jsonl b.jsonl.gz --tokenizer gpt2 --end-of-document "<|endoftext|>" --out data/all.bin
  keel tokenize texts/ --tokenizer models/llama --shard-tokens 100000000 --out data/all.bin    all-00000.bin, ...
  keel train c.yaml data.type=tokens "data.path=data/all-*.bin"

Where it was ended, the same command goes on. Of .jsonl and tables the field `text` of each row is a document. A document
is encoded by itself. docs/token-files.md describes the files, and which ones of other programs `data.type=tokens` reads.)";

struct TokenizeArguments {
  Words texts;
  std::string out;
  std::string tokenizer = "byte";
  std::string documents = "kind";
  std::string end_of_document;
  std::int64_t shard_tokens = 0;
  int threads = 0;
};

// What the tokens mean lies beside them. Bytes need nothing.
std::string beside(const std::string& out) {
  return (std::filesystem::path(out).parent_path() / "tokenizer.json").string();
}

void check_beside(const std::string& out, const Tokenizer& tokenizer) {
  const std::string path = beside(out);
  if (tokenizer.name() == "byte" || !std::filesystem::exists(path)) return;
  KEEL_CHECK(load_tokenizer(path)->to_json() == tokenizer.to_json(), "'", path,
             "' is another tokenizer, which other files there may need; write to a folder of its own");
}

Documents documents_named(const std::string& name) {
  for (const auto& [known, documents] : {std::pair<std::string_view, Documents>{"kind", Documents::by_kind},
                                         {"file", Documents::file},
                                         {"line", Documents::line}})
    if (name == known) return documents;
  throw Error(concat("--documents is '", name, "'; known are kind, file, line"));
}

// The text that a tokenizer is made of, where it is made of one.
std::string text_for(const TokenizeArguments& arguments) {
  if (!is_made_of_text(arguments.tokenizer)) return {};
  KEEL_CHECK(arguments.texts.size() == 1, "the tokenizer ", arguments.tokenizer, " is made of one text, and there are ",
             arguments.texts.size(), "; take another one, such as byte");
  return read_text(arguments.texts.front());
}

int run(const TokenizeArguments& arguments) {
  TokenizerPtr tokenizer;
  try {
    tokenizer = find_tokenizer(arguments.tokenizer, text_for(arguments));
  } catch (const Error& error) {
    if (!is_made_of_text(arguments.tokenizer)) throw;
    throw Error(concat("'", arguments.texts.front(), "': "), error);
  }
  TokenizeOptions options{.files = arguments.texts,
                          .out = arguments.out,
                          .shard_tokens = arguments.shard_tokens,
                          .documents = documents_named(arguments.documents)};
  if (!arguments.end_of_document.empty()) {
    options.end_of_document = tokenizer->token_of(arguments.end_of_document);
    KEEL_CHECK(options.end_of_document, "--end-of-document: '", arguments.end_of_document, "' is no token of ",
               arguments.tokenizer);
  }
  check_beside(arguments.out, *tokenizer);
  const Context context = Context::create({.threads = arguments.threads});
  TokenizedFiles done;
  {
    Bar bar("tokenizing");
    options.progress = [&](std::uint64_t at, std::uint64_t all) { bar.show(at, all); };
    done = tokenize_files(context, *tokenizer, options);
  }
  if (tokenizer->name() != "byte") save_tokenizer(beside(arguments.out), *tokenizer);
  if (!done.note.empty()) std::cerr << "keel tokenize: " << done.note << '\n';
  if (done.went_on_at > 0)
    std::cerr << "keel tokenize: went on at byte " << done.went_on_at << " of " << done.bytes << '\n';
  std::cout << printable(done.paths.front());
  if (done.paths.size() > 1) std::cout << " to " << printable(done.paths.back());
  std::cout << ": " << done.tokens << " tokens of " << done.bytes << " bytes, vocabulary "
            << tokenizer->vocabulary_size() << '\n';
  return 0;
}

}  // namespace

Command tokenize_command() {
  const auto arguments = std::make_shared<TokenizeArguments>();
  return {
      .name = "tokenize",
      .help = "Turn texts into files of tokens.",
      .positionals = {{"TEXT", "", Value::every_word(&arguments->texts), "The texts, or folders of them.", kRequired}},
      .options = {{"--out", "FILE", &arguments->out, "The file to write.", kRequired},
                  {"--tokenizer", "NAME", &arguments->tokenizer, "What makes the tokens: " + known_tokenizers() + "."},
                  {"--documents", "WHAT", &arguments->documents,
                   "What is encoded by itself: kind (rows of .jsonl and tables, else files), file, or line."},
                  {"--end-of-document", "TOKEN", &arguments->end_of_document, "A token behind each document."},
                  {"--shard-tokens",
                   "",
                   {&arguments->shard_tokens, 0, std::int64_t{1} << 40},
                   "Tokens of a file, after which the next one begins; 0: one file."},
                  {"--threads", "", {&arguments->threads, 0, 4096}, "0: one for each processor."}},
      .footer = kTokenizeFooter,
      .run = [arguments](const Call&) { return run(*arguments); }};
}

}  // namespace keel::cli
