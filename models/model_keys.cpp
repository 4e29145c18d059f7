#include "keel/models/model_keys.h"

#include <algorithm>
#include <deque>
#include <filesystem>

#include "keel/config/schema_row.h"
#include "keel/models/lora.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/hub_cache.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

constexpr std::string_view kModelFrom = "model.from", kNoModel = "none", kOfHub = "hub", kModelType = "model.type",
                           kModelName = "model.name", kCustomModel = "custom", kHeadSize = "model.head_size";
constexpr double kMostTokensOfModel = 16777216, kLongestBlock = 1048576;

// Texts that rows refer to live as long as the program.
std::string_view kept_text(std::string text) {
  static std::deque<std::string> texts;
  const auto found = std::ranges::find(texts, text);
  return found != texts.end() ? *found : texts.emplace_back(std::move(text));
}

std::vector<const ModelEntry*> models_of(ModelKind kind) {
  std::vector<const ModelEntry*> models;
  for (const ModelEntry& entry : keel_models())
    if (entry.kind == kind) models.push_back(&entry);
  return models;
}

std::string types_of(const std::vector<const ModelEntry*>& models) {
  std::string types;
  for (const ModelEntry* entry : models) types += concat(types.empty() ? "" : "|", entry->name);
  return types;
}

std::string published_of(const std::vector<const ModelEntry*>& models) {
  std::string names;
  for (const ModelEntry* entry : models)
    for (const ModelEntry::Published& size : entry->published) names += concat(names.empty() ? "" : "|", size.name);
  return names;
}

// Where a config.json says what the model is.
KeyRow decided_by_hub(std::string_view key, ResumeRule on_resume = ResumeRule::by_section) {
  return {.key = key,
          .type = KeyType::choice,
          .standard = kOfHub,
          .help = "What config.json says.",
          .choices = kOfHub,
          .when_key = kModelFrom,
          .when_values = kNoModel,
          .when_other = true,
          .on_resume = on_resume,
          .fixed = true};
}

KeyRow size_row(std::string_view key, std::string_view standard, std::string_view help, double high,
                std::string_view known_as) {
  return {.key = key,
          .type = KeyType::integer,
          .standard = standard,
          .help = help,
          .low = 1,
          .high = high,
          .when_key = kModelName,
          .when_values = kCustomModel,
          .known_as = known_as,
          .asked = true};
}

// A shape's number, and what each published name decides.
void add_size(std::vector<KeyRow>& rows, const KeyRow& row, const std::vector<const ModelEntry*>& models,
              std::int64_t ModelEntry::Published::*of) {
  for (const ModelEntry* entry : models)
    for (const ModelEntry::Published& size : entry->published)
      rows.push_back({.key = row.key,
                      .type = KeyType::integer,
                      .standard = kept_text(std::to_string(size.*of)),
                      .help = "As published.",
                      .when_key = kModelName,
                      .when_values = size.name,
                      .fixed = true});
  rows.push_back(row);
}

// The default of a published size, a row for all that have the same one.
void add_published(std::vector<KeyRow>& rows, KeyRow row, const std::vector<const ModelEntry*>& models,
                   std::int64_t ModelEntry::Published::*of) {
  std::vector<std::pair<std::int64_t, std::string>> names;
  for (const ModelEntry* entry : models)
    for (const ModelEntry::Published& size : entry->published) {
      auto found = std::ranges::find(names, size.*of, &std::pair<std::int64_t, std::string>::first);
      if (found == names.end()) found = names.insert(names.end(), {size.*of, std::string()});
      found->second += concat(found->second.empty() ? "" : "|", size.name);
    }
  row.known_as = {};
  for (auto& [value, each] : names) {
    row.standard = kept_text(std::to_string(value));
    row.when_values = kept_text(std::move(each));
    rows.push_back(row);
  }
}

void add_length_and_vocabulary(std::vector<KeyRow>& rows, const std::vector<const ModelEntry*>& models) {
  KeyRow block = size_row("model.block", "64", "Longest sequence, in tokens.", kLongestBlock,
                          "block_size|context|sequence_length|seq_len");
  block.role = KeyRole::sequence_length;
  rows.push_back(block);
  add_published(rows, block, models, &ModelEntry::Published::block);
  block.standard = "0";
  block.low = 0;
  block.known_as = {};
  block.help = "Longest sequence that is read, in tokens; 0: what config.json allows, but no more than 1024.";
  block.when_values = kOfHub;
  rows.push_back(block);

  const KeyRow vocabulary = {.key = "model.vocabulary",
                             .type = KeyType::integer,
                             .standard = "0",
                             .help = "Rows of the embedding table; 0: as many as the data's tokenizer has tokens.",
                             .low = 0,
                             .high = kMostTokensOfModel,
                             .when_key = kModelName,
                             .when_values = kCustomModel,
                             .known_as = "vocab_size|vocab"};
  rows.push_back(vocabulary);
  add_published(rows, vocabulary, models, &ModelEntry::Published::vocabulary);
}

// Keys of single models, each with one row for every model that has it.
void add_own_rows(std::vector<KeyRow>& rows, const std::vector<const ModelEntry*>& models) {
  std::vector<KeyRow> own;
  for (const ModelEntry* entry : models)
    for (KeyRow row : entry->rows) {
      row.when_key = kModelType;
      row.when_values = entry->name;
      const auto last =
          std::find_if(own.rbegin(), own.rend(), [&](const KeyRow& other) { return other.key == row.key; });
      own.insert(last.base() == own.begin() ? own.end() : last.base(), row);
    }
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace

std::vector<KeyRow> model_keys(ModelKind kind, std::string_view standard) {
  using enum KeyType;
  const std::vector<const ModelEntry*> models = models_of(kind);
  const std::string_view published = kept_text(published_of(models));
  std::vector<KeyRow> rows = {
      {.key = kModelFrom,
       .type = text,
       .standard = kNoModel,
       .help =
           "A model of Hugging Face's form: a folder with config.json and safetensors, or a name in the local cache "
           "that HF_HOME names. none: the keys below describe the model, and its weights begin at random.",
       .on_resume = ResumeRule::ignores,
       .known_as = "model_name_or_path|pretrained|checkpoint"},
      {.key = "model.weights",
       .type = flag,
       .standard = "true",
       .help = "Of model.from: begin with its weights. false: take the shape alone.",
       .on_resume = ResumeRule::ignores},
      {.key = "model.ignored_keys",
       .type = texts,
       .standard = "[]",
       .help = "Keys of config.json that keel does not know, and that change nothing which is computed.",
       .on_resume = ResumeRule::ignores},
      {.key = kModelType,
       .type = choice,
       .standard = standard,
       .help = "Architecture; `keel models` says what each is.",
       .choices = kept_text(types_of(models)),
       .when_key = kModelFrom,
       .when_values = kNoModel},
      decided_by_hub(kModelType),
      {.key = kModelName,
       .type = choice,
       .standard = kCustomModel,
       .help = "A published size, which sets layers, heads and width; custom: they are given.",
       .choices = kept_text(published.empty() ? std::string(kCustomModel) : concat(kCustomModel, '|', published)),
       .when_key = kModelFrom,
       .when_values = kNoModel,
       .on_resume = ResumeRule::ignores,
       .known_as = "size",
       .asked = true},
      decided_by_hub(kModelName, ResumeRule::ignores)};
  add_size(rows, size_row("model.layers", "4", "Transformer blocks.", 1024, "n_layer|num_layers|depth"), models,
           &ModelEntry::Published::layers);
  add_size(rows, size_row("model.heads", "4", "Attention heads; must divide the width.", 1024, "n_head|num_heads"),
           models, &ModelEntry::Published::heads);
  add_size(rows, size_row("model.width", "128", "Channels between the blocks.", 65536, "n_embd|hidden_size|d_model"),
           models, &ModelEntry::Published::width);
  add_length_and_vocabulary(rows, models);
  rows.push_back({.key = "model.dropout",
                  .type = number,
                  .standard = "0",
                  .help = "Probability that an activation is dropped in training.",
                  .low = 0,
                  .high = 1,
                  .when_key = kModelFrom,
                  .when_values = kNoModel,
                  .on_resume = ResumeRule::warns,
                  .high_open = true});
  rows.push_back({.key = "model.attention_dropout",
                  .type = number,
                  .standard = "0",
                  .help = "Probability that a weight of attention is dropped in training.",
                  .low = 0,
                  .high = 1,
                  .when_key = kModelFrom,
                  .when_values = kNoModel,
                  .on_resume = ResumeRule::warns,
                  .known_as = "attn_pdrop|attention_probs_dropout_prob",
                  .high_open = true});
  rows.push_back({.key = "model.recompute",
                  .type = flag,
                  .standard = "false",
                  .help = "Keep only the inputs of blocks, and compute what is inside again during backward: the same "
                          "bits in less memory, for a third more products. Published as activation or gradient "
                          "checkpointing.",
                  .on_resume = ResumeRule::ignores,
                  .known_as = "activation_checkpointing|gradient_checkpointing",
                  .role = KeyRole::recompute});
  add_own_rows(rows, models);
  for (const KeyRow& row : lora_keys()) rows.push_back(row);
  return rows;
}

std::vector<SettingsComplaint> complain_of_model(const Settings& settings) {
  std::vector<SettingsComplaint> complaints = complain_of_lora(settings);
  if (settings.text(kModelFrom) != kNoModel) return complaints;
  const ModelEntry& entry = *find_model(settings.text(kModelType));
  const std::string& name = settings.text(kModelName);
  if (name != kCustomModel &&
      std::ranges::find(entry.published, name, &ModelEntry::Published::name) == entry.published.end())
    complaints.push_back({{kModelName, kModelType}, concat("there is no ", entry.name, " of this size; leave it out")});
  const std::int64_t heads = settings.integer("model.heads"), width = settings.integer("model.width");
  const bool has_own_size =
      std::ranges::find(entry.rows, kHeadSize, &KeyRow::key) != entry.rows.end() && settings.integer(kHeadSize) != 0;
  if (!has_own_size && width % heads != 0)
    complaints.push_back(
        {{"model.heads", "model.width"},
         concat(heads, " heads do not divide the width ", width, "; choose a width that is a multiple")});
  if (entry.complain != nullptr)
    for (SettingsComplaint& each : entry.complain(settings)) complaints.push_back(std::move(each));
  return complaints;
}

namespace {

// Empty: there is none.
std::string folder_called(const std::string& name) {
  return std::filesystem::is_directory(name) ? name : hub_folder(name);
}

}  // namespace

bool has_hub_model(const Settings& settings) {
  const std::string& from = settings.text(kModelFrom);
  return from != kNoModel && !folder_called(from).empty();
}

std::string hub_model_folder(const Settings& settings) {
  const std::string& from = settings.text(kModelFrom);
  if (from == kNoModel) return {};
  std::string folder = folder_called(from);
  KEEL_CHECK(!folder.empty(), "model.from: '", printable(from, 256),
             "' is neither a folder nor a model of the local cache ", hub_cache(),
             "; `scripts/fetch-model NAME` brings a model there");
  return folder;
}

namespace {

// Where the config.json is; empty: the keys describe the model.
std::string folder_of(const Settings& settings, const std::string& run) {
  if (settings.text(kModelFrom) == kNoModel) return {};
  return run.empty() ? hub_model_folder(settings) : run;
}

ModelSpecPtr spec_of_folder(const Settings& settings, const std::string& folder) {
  const std::string place = concat(folder, "/config.json");
  KEEL_CHECK(std::filesystem::exists(place), "model.from: '", printable(folder, 256), "' has no config.json");
  return read_hub_spec(read_text_file(place), place, settings.texts("model.ignored_keys"));
}

}  // namespace

ModelSpecPtr model_spec(const Settings& settings, std::int64_t vocabulary, const std::string& run) {
  const std::string folder = folder_of(settings, run);
  if (folder.empty()) {
    const std::int64_t asked = settings.integer("model.vocabulary");
    KEEL_CHECK(asked == 0 || asked >= vocabulary, "model.vocabulary is ", asked, ", but the data has ", vocabulary,
               " different tokens; leave it out, or make it at least as many");
    return find_model(settings.text(kModelType))->of_settings(settings, asked == 0 ? vocabulary : asked);
  }
  ModelSpecPtr spec = spec_of_folder(settings, folder);
  KEEL_CHECK(spec->vocabulary() >= vocabulary, "model.from: the model in '", printable(folder, 256), "' has ",
             spec->vocabulary(), " tokens, but the data has ", vocabulary,
             "; take the tokenizer that belongs to the model");
  const std::int64_t block = settings.integer("model.block");
  KEEL_CHECK(block <= spec->block(), "model.block is ", block, ", but the model in '", printable(folder, 256),
             "' reads ", spec->block(), " tokens at most");
  return spec;
}

std::int64_t sequence_length(const Settings& settings, const std::string& run) {
  const std::int64_t block = settings.integer("model.block");
  return block > 0 ? block : std::min<std::int64_t>(spec_of_folder(settings, folder_of(settings, run))->block(), 1024);
}

}  // namespace keel
