#include "keel/tasks/language_keys.h"

#include <algorithm>
#include <deque>
#include <string>

#include "keel/config/schema_row.h"
#include "keel/nn/models/gpt.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::string_view kName = "model.name", kCustom = "custom", kPublished = "gpt2|gpt2-medium|gpt2-large|gpt2-xl",
                           kModelNames = "custom|gpt2|gpt2-medium|gpt2-large|gpt2-xl";
constexpr std::string_view kType = "data.type", kFiles = "text|tokens";
constexpr std::string_view kMixture = "mixture", kTexts = "text|mixture", kSplit = "text|tokens|mixture";
constexpr double kMostTokens = 16777216, kLongest = 1048576;

const KeyParts& sources() {
  static const KeyParts kept = {"a source",
                                {{.key = "path", .type = KeyType::path, .help = "As data.path."},
                                 {.key = "weight",
                                  .type = KeyType::number,
                                  .standard = "1",
                                  .help = "Its share of the rows is its part of the sum of all weights.",
                                  .low = 0,
                                  .low_open = true}}};
  return kept;
}

// A text that rows may point to.
std::string_view kept(std::int64_t number) {
  static std::deque<std::string> texts;
  return texts.emplace_back(std::to_string(number));
}

// What a published name decides, behind the row of the key that says it otherwise.
void add_published_sizes(std::vector<KeyRow>& rows) {
  struct Decided {
    std::string_view key;
    std::int64_t (*of)(const GptOptions& size);
  };
  constexpr Decided kDecided[] = {{"model.layers", [](const GptOptions& size) -> std::int64_t { return size.layers; }},
                                  {"model.heads", [](const GptOptions& size) -> std::int64_t { return size.heads; }},
                                  {"model.width", [](const GptOptions& size) { return size.width; }}};
  for (const Decided& decided : kDecided)
    for (const std::string_view name : split_choices(kPublished)) {
      const auto place =
          std::find_if(rows.rbegin(), rows.rend(), [&](const KeyRow& row) { return row.key == decided.key; }).base();
      rows.insert(place, {.key = decided.key,
                          .type = KeyType::integer,
                          .standard = kept(decided.of(gpt_by_name(name))),
                          .help = "As published.",
                          .when_key = kName,
                          .when_values = name,
                          .fixed = true});
    }
}

}  // namespace

std::vector<KeyRow> language_keys() {
  using enum KeyType;
  std::vector<KeyRow> rows = {
      {.key = "model.type",
       .type = choice,
       .standard = "gpt",
       .help = "Architecture; gpt is GPT-2's: learned positions, tied output layer.",
       .choices = "gpt"},
      {.key = kName,
       .type = choice,
       .standard = kCustom,
       .help = "A published size, which sets layers, heads and width; custom: they are given.",
       .choices = kModelNames,
       .on_resume = ResumeRule::ignores,
       .known_as = "size"},
      {.key = "model.layers",
       .type = integer,
       .standard = "4",
       .help = "Transformer blocks.",
       .low = 1,
       .high = 1024,
       .when_key = kName,
       .when_values = kCustom,
       .known_as = "n_layer|num_layers|depth"},
      {.key = "model.heads",
       .type = integer,
       .standard = "4",
       .help = "Attention heads; must divide the width.",
       .low = 1,
       .high = 1024,
       .when_key = kName,
       .when_values = kCustom,
       .known_as = "n_head|num_heads"},
      {.key = "model.width",
       .type = integer,
       .standard = "128",
       .help = "Channels between the blocks.",
       .low = 1,
       .high = 65536,
       .when_key = kName,
       .when_values = kCustom,
       .known_as = "n_embd|hidden_size|d_model"},
      {.key = "model.block",
       .type = integer,
       .standard = "64",
       .help = "Longest sequence, in tokens.",
       .low = 1,
       .high = kLongest,
       .when_key = kName,
       .when_values = kCustom,
       .known_as = "block_size|context|sequence_length|seq_len"},
      {.key = "model.block",
       .type = integer,
       .standard = "1024",
       .help = "Longest sequence, in tokens.",
       .low = 1,
       .high = kLongest,
       .when_key = kName,
       .when_values = kPublished},
      {.key = "model.vocabulary",
       .type = integer,
       .standard = "0",
       .help = "Rows of the embedding table; 0: as many as the data's tokenizer has tokens.",
       .low = 0,
       .high = kMostTokens,
       .when_key = kName,
       .when_values = kCustom,
       .known_as = "vocab_size|vocab"},
      {.key = "model.vocabulary",
       .type = integer,
       .standard = "50257",
       .help = "Rows of the embedding table; 0: as many as the data's tokenizer has tokens.",
       .low = 0,
       .high = kMostTokens,
       .when_key = kName,
       .when_values = kPublished},
      {.key = "model.dropout",
       .type = number,
       .standard = "0",
       .help = "Probability that an activation is dropped in training.",
       .low = 0,
       .high = 1,
       .on_resume = ResumeRule::warns,
       .high_open = true},
      {.key = "model.bias", .type = flag, .standard = "true", .help = "Biases in linear layers and layer norms."},
      {.key = kType,
       .type = choice,
       .standard = "text",
       .help =
           "A text file, a file of token numbers, sums like 347+586= made up on the fly, or several files in shares.",
       .choices = "text|tokens|addition|mixture",
       .known_as = "dataset"},
      {.key = "data.path",
       .type = path,
       .help =
           "The file, relative to the folder keel is started in; of tokens also a folder of shards, or a pattern such "
           "as shards/train_*.bin.",
       .when_key = kType,
       .when_values = kFiles,
       .known_as = "file|text"},
      {.key = "data.mixture",
       .type = parts,
       .help = "Files with the shares that they have of every step's rows, to less than one row of any beginning: "
               "texts, or "
               "files of tokens, all of one vocabulary. Each gives its windows or documents once in every round "
               "through it.",
       .when_key = kType,
       .when_values = kMixture,
       .parts = &sources()},
      {.key = "data.packing",
       .type = flag,
       .standard = "false",
       .help = "Documents, packed into rows of model.block tokens, of which each sees itself alone: objects of .jsonl, "
               "rows and examples with a field text, files of a folder, lines of other texts. False: a text is one.",
       .when_key = kType,
       .when_values = kTexts},
      {.key = "data.tokenizer",
       .type = text,
       .standard = "byte",
       .help = "byte: a token for each byte; character: for each different character of the text; else the folder of a "
               "model, a file "
               "of its tokenizer, or the name of a model in the local cache that HF_HOME names.",
       .when_key = kType,
       .when_values = "text"},
      {.key = "data.tokenizer",
       .type = text,
       .standard = "byte",
       .help = "Of texts among the files: byte, a token for each byte; else the folder of a model, a file of its "
               "tokenizer, or the "
               "name of a model in the local cache.",
       .when_key = kType,
       .when_values = kMixture},
      {.key = "data.validation",
       .type = number,
       .standard = "0.1",
       .help = "Fraction at the end of each file, or of its documents, that is never trained on; 0: no evaluation.",
       .low = 0,
       .high = 0.5,
       .when_key = kType,
       .when_values = kSplit,
       .known_as = "validation_fraction|val_split"},
      {.key = "data.digits",
       .type = integer,
       .standard = "3",
       .help = "Digits of each number to add.",
       .low = 1,
       .high = 9,
       .when_key = kType,
       .when_values = "addition"},
      {.key = "eval.samples",
       .type = integer,
       .standard = "1000",
       .help = "Held-out sums that one evaluation answers.",
       .low = 1,
       .when_key = kType,
       .when_values = "addition",
       .on_resume = ResumeRule::ignores},
  };
  add_published_sizes(rows);
  return rows;
}

std::vector<SettingsComplaint> complain_of_language(const Settings& settings) {
  const std::int64_t heads = settings.integer("model.heads"), width = settings.integer("model.width");
  if (width % heads == 0) return {};
  return {{{"model.heads", "model.width"},
           concat(heads, " heads do not divide the width ", width, "; choose a width that is a multiple")}};
}

}  // namespace keel
