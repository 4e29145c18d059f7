// `keel tokenizer`: a text cut into tokens, and a tokenizer trained on texts.

#include <fmt/core.h>

#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "bar.h"
#include "commands.h"
#include "common_options.h"
#include "keel/data/file_list.h"
#include "keel/data/gzip.h"
#include "keel/runtime/context.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "keel/runtime/printable.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "keel/tokenizers/train_bpe.h"
#include "keel/tokenizers/trained_json.h"
#include "table.h"

namespace keel::cli {
namespace {

constexpr const char* kShowTokensFooter = R"(
Examples:
  keel tokenizer show gpt2 "Hello, world"
  keel tokenizer show models/bert "A text." --pair "And another one."
  keel tokenizer show data/tokenizer.json --json <text.txt
Each token is shown with its number, its text in the vocabulary, and the bytes of the text that it was made of.)";

constexpr const char* kTrainTokenizerFooter = R"(
Examples:
  keel tokenizer train corpus.txt --vocabulary 8000 --out models/mine
  keel tokenizer train texts/ --vocabulary 32000 --special "<|endoftext|>" --out models/mine
  keel train c.yaml data.tokenizer=models/mine
The Tokenizers library trains the same tokens and merges from these files, and reads the file.)";

struct ShowTokensArguments {
  std::string tokenizer, text, pair;
  bool specials = true, json = false;
};

struct TrainTokenizerArguments {
  Words texts, specials;
  std::string out;
  std::int64_t vocabulary = 30000, min_frequency = 0, longest = 0;
  int threads = 0;
};

std::string standard_input() { return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()}; }

std::string_view covered(std::string_view text, const TextSpan& span) { return text.substr(span.begin, span.size()); }

Json json_of_tokens(const Tokenizer& tokenizer, const Encoding& encoding) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < encoding.size(); ++i) {
    Json row{{"id", std::int64_t{encoding.ids[i]}},
             {"token", tokenizer.token_text(encoding.ids[i]).value_or("")},
             {"begin", std::int64_t{encoding.offsets[i].begin}},
             {"end", std::int64_t{encoding.offsets[i].end}},
             {"type", std::int64_t{encoding.type_ids[i]}},
             {"special", encoding.special[i] != 0}};
    row["word"] = encoding.word_ids[i] < 0 ? Json(nullptr) : Json(std::int64_t{encoding.word_ids[i]});
    rows.push_back(std::move(row));
  }
  return rows;
}

int show_cut(const ShowTokensArguments& arguments) {
  const std::string first = arguments.text.empty() ? standard_input() : arguments.text;
  const TokenizerPtr tokenizer = find_tokenizer(arguments.tokenizer, first);
  const std::optional<std::string_view> second =
      arguments.pair.empty() ? std::nullopt : std::optional<std::string_view>(arguments.pair);
  const Encoding encoding = tokenizer->encode(TextPair{first, second}, {.specials = arguments.specials});
  if (arguments.json) {
    std::cout << json_of_tokens(*tokenizer, encoding).dump(1, BadUtf8::replace) << '\n';
    return 0;
  }
  std::string cut;
  std::vector<TableColumn> columns = {
      {"", "token", 0, true}, {"", "id"}, {"", "bytes", 1}, {"", "word", 2}, {"", "of the text", 0, true}};
  for (std::size_t i = 0; i < encoding.size(); ++i) {
    const bool is_special = encoding.special[i] != 0;
    const std::string name = tokenizer->token_text(encoding.ids[i]).value_or("");
    const std::string_view part =
        is_special ? ""
                   : covered(encoding.sequence_ids[i] == 1 ? *second : std::string_view(first), encoding.offsets[i]);
    cut += (cut.empty() ? "" : "|") + (is_special ? name : std::string(part));
    const std::string cells[] = {
        printable(name), std::to_string(encoding.ids[i]),
        is_special ? "" : fmt::format("{}-{}", encoding.offsets[i].begin, encoding.offsets[i].end),
        encoding.word_ids[i] < 0 ? "" : std::to_string(encoding.word_ids[i]), printable(part)};
    for (std::size_t c = 0; c < columns.size(); ++c) columns[c].cells.push_back(cells[c]);
  }
  std::cout << printable(cut) << "\n\n"
            << table_text(columns, columns_of_output()) << '\n'
            << encoding.size() << " tokens of " << first.size() + arguments.pair.size() << " bytes, vocabulary "
            << tokenizer->vocabulary_size() << '\n';
  return 0;
}

// Calls f with each line, its line feed included, as the Tokenizers library reads files.
template <class F>
void for_each_line(const std::string& path, F&& f) {
  const InputFile file(is_gzip(path) ? decompress_once(path) : path);
  KEEL_CHECK(file.size() > 0, "'", path, "' is empty; name a text");
  constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;
  std::string rest, block;
  for (std::uint64_t at = 0; at < file.size(); at += block.size()) {
    block.resize(std::min(kBlock, file.size() - at));
    file.read(at, std::as_writable_bytes(std::span(block)));
    std::size_t begin = 0;
    for (std::size_t feed; (feed = block.find('\n', begin)) != std::string::npos; begin = feed + 1) {
      rest.append(block, begin, feed + 1 - begin);
      f(rest, at + feed + 1, file.size());
      rest.clear();
    }
    rest.append(block, begin);
  }
  if (!rest.empty()) f(rest, file.size(), file.size());
}

int train_tokenizer(const TrainTokenizerArguments& arguments) {
  KEEL_CHECK(!std::filesystem::exists(arguments.out + "/tokenizer.json"), "'", arguments.out,
             "/tokenizer.json' is there already; name another folder");
  const Context context = Context::create({.threads = arguments.threads});
  BpeTrainer trainer(context, pre_tokenizers::byte_level(false, true),
                     {.vocabulary_size = arguments.vocabulary,
                      .min_frequency = arguments.min_frequency,
                      .specials = arguments.specials,
                      .longest_token = arguments.longest});
  std::uint64_t bytes = 0;
  {
    Bar bar("counting words");
    for (const std::string& name : arguments.texts)
      for (const std::string& path : files_at(name)) {
        for_each_line(path, [&](const std::string& line, std::uint64_t done, std::uint64_t all) {
          trainer.feed(line);
          bar.show(done, all);
        });
        bytes += InputFile(path).size();
      }
  }
  TrainedBpe trained;
  {
    Bar bar("merging");
    trained = trainer.train([&](std::int64_t done, std::int64_t all) {
      bar.show(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(all));
    });
  }
  std::filesystem::create_directories(arguments.out);
  write_text_file(arguments.out + "/tokenizer.json", byte_level_json(trained, arguments.specials));
  std::cout << printable(arguments.out) << "/tokenizer.json: " << trained.tokens.size() << " tokens, "
            << trained.merges.size() << " merges, of " << bytes << " bytes\n";
  if (std::ssize(trained.tokens) < arguments.vocabulary)
    std::cout << "fewer than " << arguments.vocabulary << ": no pair is left to merge\n";
  return 0;
}

Command show_tokens_command() {
  const auto arguments = std::make_shared<ShowTokensArguments>();
  return {.name = "show",
          .help = "Print a text cut into tokens.",
          .positionals = {{"TOKENIZER", "", &arguments->tokenizer, "One of " + known_tokenizers() + ".", kRequired},
                          {"TEXT", "", &arguments->text, "The text; without one the standard input is read."}},
          .options = {{"--pair", "TEXT", &arguments->pair, "A second text, that belongs to the first."},
                      {"--specials,--no-specials", "", &arguments->specials, "Special tokens around the texts."},
                      {"--json", "", &arguments->json, "As JSON."}},
          .footer = kShowTokensFooter,
          .run = [arguments](const Call&) { return show_cut(*arguments); }};
}

Command train_tokenizer_command() {
  const auto arguments = std::make_shared<TrainTokenizerArguments>();
  return {
      .name = "train",
      .help = "Train a byte-level BPE.",
      .positionals = {{"TEXT", "", Value::every_word(&arguments->texts), "The texts, or folders of them.", kRequired}},
      .options = {{"--out", "FOLDER", &arguments->out, "Where tokenizer.json is written.", kRequired},
                  {"--vocabulary", "", {&arguments->vocabulary, 256, std::int64_t{1} << 24}, "Tokens in all."},
                  {"--special", "TOKENS", &arguments->specials, "Special tokens: the first numbers, in this order."},
                  {"--min-frequency",
                   "",
                   {&arguments->min_frequency, 0, std::int64_t{1} << 40},
                   "How often a pair must stand in the texts to become a token."},
                  {"--longest", "", {&arguments->longest, 0, 1 << 20}, "Bytes of the longest token; 0: any."},
                  {"--threads", "", {&arguments->threads, 0, 4096}, "0: one for each processor."}},
      .footer = kTrainTokenizerFooter,
      .run = [arguments](const Call&) { return train_tokenizer(*arguments); }};
}

}  // namespace

Command tokenizer_command() {
  return {.name = "tokenizer",
          .help = "Show what a tokenizer makes of a text, or train one.",
          .footer = "\nExample:\n  keel tokenizer show gpt2 \"Hello, world\"",
          .commands = {show_tokens_command(), train_tokenizer_command()}};
}

}  // namespace keel::cli
