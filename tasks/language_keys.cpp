#include "keel/tasks/language_keys.h"

#include <algorithm>
#include <string>

#include "keel/config/schema_row.h"
#include "keel/models/model_keys.h"
#include "keel/runtime/error.h"
#include "keel/tasks/catalog_model.h"
#include "keel/tasks/text_source_keys.h"

namespace keel {
namespace {

constexpr std::string_view kType = "data.type";
constexpr std::string_view kPacking = "data.packing", kLanguageTokenizer = "data.tokenizer";
constexpr std::string_view kMixture = "mixture", kFiles = "text|tokens|mixture";

}  // namespace

std::vector<KeyRow> language_keys() {
  using enum KeyType;
  std::vector<KeyRow> rows = {
      {.key = kType,
       .type = choice,
       .standard = "text",
       .help =
           "A text file, a file of token numbers, sums like 347+586= made up on the fly, or several files in shares.",
       .choices = "text|tokens|addition|mixture",
       .known_as = "dataset",
       .asked = true},
      {.key = kPacking,
       .type = flag,
       .standard = "false",
       .help = "Documents, packed into rows of model.block tokens, of which each sees itself alone: objects of .jsonl, "
               "rows and examples with a field text, files of a folder, lines of other texts, and what lies between "
               "the tokens that `keel tokenize --end-of-document` has written. False: a text is one.",
       .when_key = kType,
       .when_values = kFiles},
      {.key = kLanguageTokenizer,
       .type = text,
       .standard = kAutoTokenizer,
       .help = "auto: that of model.from, or byte without one; model: that of model.from; byte: a token for each byte; "
               "character: for each different character of the text; else the folder of a model, a file of its "
               "tokenizer, or the name of a model in the local cache that HF_HOME names.",
       .when_key = kType,
       .when_values = "text",
       .asked = true},
      {.key = kLanguageTokenizer,
       .type = text,
       .standard = kAutoTokenizer,
       .help = "Of texts among the files: auto, that of model.from, or byte without one; model, that of model.from; "
               "byte, a token for each byte; else the folder of a model, a file of its tokenizer, or the name of a "
               "model in the local cache.",
       .when_key = kType,
       .when_values = kMixture},
      {.key = "data.digits",
       .type = integer,
       .standard = "3",
       .help = "Digits of each number to add.",
       .low = 1,
       .high = 9,
       .when_key = kType,
       .when_values = "addition",
       .asked = true},
      {.key = "eval.samples",
       .type = integer,
       .standard = "1000",
       .help = "Held-out sums that one evaluation answers.",
       .low = 1,
       .when_key = kType,
       .when_values = "addition",
       .on_resume = ResumeRule::ignores},
  };
  const auto insert_behind = [&](std::string_view key, const std::vector<KeyRow>& added) {
    const auto last = std::find_if(rows.rbegin(), rows.rend(), [&](const KeyRow& row) { return row.key == key; });
    rows.insert(last.base(), added.begin(), added.end());
  };
  insert_behind(kLanguageTokenizer, text_validation_keys({kPacking, "true"}));
  insert_behind(kType, text_source_keys());
  std::vector<KeyRow> all = model_keys(ModelKind::decoder, "gpt");
  all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

std::vector<SettingsComplaint> complain_of_language(const Settings& settings) {
  std::vector<SettingsComplaint> complaints = complain_of_model(settings);
  const std::string& type = settings.text(kType);
  if (type == "addition") return complaints;
  const bool is_packed = settings.flag(kPacking);
  for (SettingsComplaint& each : complain_of_text_sources(settings, is_packed)) complaints.push_back(std::move(each));
  if (type != "tokens") complain_of_tokenizer(settings, complaints);
  return complaints;
}

}  // namespace keel
