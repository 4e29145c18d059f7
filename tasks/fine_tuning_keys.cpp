#include "keel/tasks/fine_tuning_keys.h"

#include "keel/models/model_keys.h"
#include "keel/tasks/catalog_model.h"
#include "keel/tasks/data_keys.h"
#include "keel/tokenizers/find_tokenizer.h"

namespace keel {

std::vector<KeyRow> fine_tuning_keys() {
  using enum KeyType;
  std::vector<KeyRow> rows = {
      {.key = "data.path",
       .type = path,
       .help = "Records: objects of .jsonl, or rows of a table or a columnar file, with a list of messages, or with a "
               "prompt and a response.",
       .known_as = "file",
       .role = KeyRole::data_file},
      {.key = "data.template",
       .type = choice,
       .standard = "chatml",
       .help =
           "How a chat is written: as Llama 3 Instruct reads it, as ChatML (Qwen), or as \"user: ...\" with an empty "
           "line behind each message, which needs no special tokens.",
       .choices = "llama3|chatml|plain",
       .known_as = "chat_template",
       .asked = true},
      {.key = "data.tokenizer",
       .type = text,
       .standard = kModelTokenizer,
       .help =
           "byte, the folder of a model, a file of its tokenizer, or the name of a model in the local cache; model: "
           "that of model.from. It has the special tokens of data.template.",
       .asked = true},
      {.key = "data.messages",
       .type = text,
       .standard = "messages",
       .help =
           "The field of a record with its messages: [{\"role\": \"user\", \"content\": \"...\"}, ...], of the roles "
           "system, user and assistant."},
      {.key = "data.prompt",
       .type = text,
       .standard = "prompt",
       .help = "Of a record without messages: the field that is the user's message."},
      {.key = "data.response",
       .type = text,
       .standard = "response",
       .help = "Of a record without messages: the field that is the answer."},
      {.key = "data.system",
       .type = text,
       .standard = "none",
       .help = "The system's message of records that have none, and of prompts; none: they have none."},
      {.key = "data.long",
       .type = choice,
       .standard = "refuse",
       .help = "What becomes of a record of more than model.block tokens: an error with its line, or it is skipped, or "
               "cut behind model.block tokens.",
       .choices = "refuse|skip|cut"},
      {.key = "data.packing",
       .type = flag,
       .standard = "false",
       .help = "Several records in a row of model.block tokens, of which each sees itself alone. false: a record is a "
               "row, filled up to the longest of a step."},
      {.key = "data.validation",
       .type = number,
       .standard = "0.1",
       .help = "Fraction of the records that is never trained on; 0: no evaluation.",
       .low = 0,
       .high = 0.5,
       .known_as = "validation_fraction|val_split",
       .role = KeyRole::validation_fraction},
      {.key = "eval.answer_tokens",
       .type = integer,
       .standard = "128",
       .help = "Tokens of an answer of `keel predict` at most; each is the likeliest one.",
       .low = 1,
       .high = 1048576,
       .on_resume = ResumeRule::ignores}};
  for (const KeyRow& each : validation_keys()) rows.push_back(each);
  rows.push_back(last_rows_key());
  std::vector<KeyRow> all = model_keys(ModelKind::decoder, "gpt");
  all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

std::vector<SettingsComplaint> complain_of_fine_tuning(const Settings& settings) {
  std::vector<SettingsComplaint> complaints = complain_of_model(settings);
  for (SettingsComplaint& each : complain_of_validation(settings)) complaints.push_back(std::move(each));
  complain_of_tokenizer(settings, complaints);
  if (is_made_of_text(settings.text("data.tokenizer")))
    complaints.push_back(
        {{"data.tokenizer"}, "is made of one text, and there are records; take another one, such as byte"});
  return complaints;
}

}  // namespace keel
