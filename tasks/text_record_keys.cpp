// Keys of the section `data` of tasks that learn from texts with labels.

#include <string>

#include "keel/tasks/catalog_model.h"
#include "keel/tasks/data_keys.h"
#include "keel/tasks/text_records.h"

namespace keel {
namespace {

constexpr std::string_view kText = "data.text", kTruncation = "data.truncation", kTokenizer = "data.tokenizer",
                           kHubModel = "model.from", kLabel = "data.label";

std::vector<KeyRow> tokenizer_keys() {
  constexpr std::string_view help =
      "model: that of model.from; byte: a token for each byte; character: for each different character of the texts; "
      "else the folder of a model, a file of its tokenizer (as `keel tokenizer train` writes one), or the name of a "
      "model in the local cache that HF_HOME names.";
  const KeyRow scratch = {.key = kTokenizer,
                          .type = KeyType::text,
                          .standard = "byte",
                          .help = help,
                          .when_key = kHubModel,
                          .when_values = "none",
                          .asked = true};
  KeyRow hub = scratch;
  hub.standard = kModelTokenizer;
  hub.when_other = true;
  return {scratch, hub};
}

}  // namespace

std::vector<KeyRow> text_record_keys(const TextRecordWords& words) {
  using enum KeyType;
  std::vector<KeyRow> rows = {
      {.key = "data.path",
       .type = path,
       .help = "A table, JSON lines (.jsonl) or a columnar file, each row, object or example of which is one to learn "
               "from.",
       .known_as = "file|train_file|training_dataset",
       .role = KeyRole::data_file},
      {.key = "data.format",
       .type = choice,
       .standard = "auto",
       .help = "Of files whose names (.csv, .tsv, .jsonl) and first bytes do not say it; of tables, csv or tsv stands "
               "for the name, and another contradiction is an error. In tsv a tab ends a cell, and quotes are "
               "characters as any other.",
       .choices = "auto|csv|tsv|jsonl|columns"},
      {.key = "data.header",
       .type = flag,
       .standard = "true",
       .help = "The first line of a table names its columns; false: they are 0, 1, ..."},
      {.key = kText, .type = texts, .standard = words.text, .help = words.text_help, .known_as = "text_column|inputs"},
      {.key = kLabel,
       .type = texts,
       .standard = words.label,
       .help = words.label_help,
       .known_as = "label_column|target|labels"}};
  for (const KeyRow& row : tokenizer_keys()) rows.push_back(row);
  rows.push_back({.key = kTruncation,
                  .type = choice,
                  .standard = "longest_first",
                  .help = "Which text of a pair is cut where both have more than model.block tokens with the special "
                          "ones; one text is cut at its end. none: a longer one is an Error.",
                  .choices = "longest_first|only_first|only_second|none"});
  for (const KeyRow& row : example_keys()) rows.push_back(row);
  rows.push_back({.key = "data.group_by_length",
                  .type = flag,
                  .standard = "false",
                  .help = "Texts of a training step have like lengths, so that less is filled up: the order of an "
                          "epoch is sorted by length in pieces of 50 steps, whose order is drawn. Reads all texts at "
                          "the start.",
                  .known_as = "length_grouped"});
  rows.push_back({.key = "data.pad_multiple",
                  .type = integer,
                  .standard = "1",
                  .help = "Texts of a batch are filled up to the longest one's tokens, rounded up to a multiple of "
                          "this. 8 suits the tensor cores of GPUs.",
                  .low = 1,
                  .high = 4096,
                  .known_as = "pad_to_multiple_of"});
  return rows;
}

std::vector<SettingsComplaint> complain_of_text_records(const Settings& settings) {
  std::vector<SettingsComplaint> complaints = complain_of_validation(settings);
  const auto complain = [&](std::vector<std::string_view> keys, std::string wrong) {
    complaints.push_back({std::move(keys), std::move(wrong)});
  };
  const std::vector<std::string>& texts = settings.texts(kText);
  if (texts.empty() || texts.size() > 2)
    complain({kText}, concat("names ", texts.size(), " columns; one, or the two of a pair, are read"));
  if (texts.size() == 2 && texts[0] == texts[1]) complain({kText}, "names one column twice");
  const std::string& truncation = settings.text(kTruncation);
  if (texts.size() == 1 && truncation == "only_second")
    complain({kTruncation, kText}, "there is one text, and only_second cuts the second of a pair");
  if (settings.texts(kLabel).empty()) complain({kLabel}, "names no column; give that of what is learnt");
  complain_of_tokenizer(settings, complaints);
  return complaints;
}

}  // namespace keel
