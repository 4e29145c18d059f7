#include "keel/tasks/catalog_model.h"

#include <filesystem>

#include "keel/models/model_keys.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/printable.h"
#include "keel/tasks/hub_files.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "keel/tokenizers/tokenizer_files.h"

namespace keel {
namespace {

constexpr const char *kRunTokenizer = "tokenizer.json", *kRunModel = "config.json";
constexpr std::string_view kModelFromKey = "model.from", kLoraFromKey = "model.lora_from",
                           kTokenizerNameKey = "data.tokenizer";
constexpr const char* kNoModelsTokenizer =
    "there is no model.from whose tokenizer could be taken; name a tokenizer (a folder or a file, such as one that "
    "`keel tokenizer train` has made), or give model.from";

}  // namespace

bool CatalogModel::is_published() const { return site_.settings.text(kModelFromKey) != "none"; }

std::string CatalogModel::kept_instead(std::string_view key, bool is_there, const char* file) const {
  if (!site_.run.empty() || is_there) return site_.run;
  const auto& [folder, settings] = site_.kept;
  const bool is_same = !folder.empty() && settings.text(key) == site_.settings.text(key);
  return is_same && std::filesystem::exists(concat(folder, '/', file)) ? folder : "";
}

std::string CatalogModel::run_for_model() const {
  return kept_instead(kModelFromKey, !is_published() || has_hub_model(site_.settings), kRunModel);
}

std::string CatalogModel::run_for_adapters() const {
  const std::string& from = site_.settings.text(kLoraFromKey);
  return kept_instead(kLoraFromKey, from == "none" || std::filesystem::exists(concat(from, '/', kAdapterConfig)),
                      kAdapterConfig);
}

std::string CatalogModel::run_for_tokenizer(const std::string& name) const {
  return kept_instead(kTokenizerNameKey, has_tokenizer(name), kRunTokenizer);
}

std::string CatalogModel::folder() const {
  const std::string run = run_for_model();
  return !run.empty() ? run : is_published() ? hub_model_folder(site_.settings) : "";
}

ModelSpecPtr CatalogModel::spec(std::int64_t vocabulary) const {
  return model_spec(site_.settings, vocabulary, run_for_model());
}

std::int64_t CatalogModel::positions() const { return sequence_length(site_.settings, run_for_model()); }

std::string CatalogModel::in_run(std::string_view file) const {
  const std::string path = concat(site_.run, '/', file);
  return !site_.run.empty() && std::filesystem::exists(path) ? path : "";
}

bool CatalogModel::has_run_tokenizer() const { return !in_run(kRunTokenizer).empty(); }

TokenizerPtr CatalogModel::run_tokenizer() const {
  return has_run_tokenizer() ? load_tokenizer(in_run(kRunTokenizer)) : nullptr;
}

TokenizerPtr CatalogModel::named_tokenizer(const std::string& name) const {
  const std::string kept = run_for_tokenizer(name);
  return kept.empty() || kept == site_.run ? find_tokenizer(name, "")
                                           : load_tokenizer(concat(kept, '/', kRunTokenizer));
}

std::string CatalogModel::tokenizer_name(const std::string& name) const {
  if (name != kAutoTokenizer) return name;
  return is_published() ? std::string(kModelTokenizer) : "byte";
}

TokenizerPtr CatalogModel::tokenizer_of(const std::string& given, const std::function<std::string()>& text) const {
  if (has_run_tokenizer()) return run_tokenizer();
  const std::string name = tokenizer_name(given);
  if (name == kModelTokenizer) {
    KEEL_CHECK(is_published(), "data.tokenizer=model: ", kNoModelsTokenizer);
    try {
      return load_tokenizer(folder());
    } catch (const Error& error) {
      throw Error(concat("data.tokenizer=", given, " is the tokenizer of model.from: "), error,
                  "; put the tokenizer's files there, or name another: data.tokenizer=byte, or a folder or a "
                  "file of the tokenizer that the model was trained with");
    }
  }
  if (!is_made_of_text(name)) return named_tokenizer(name);
  KEEL_CHECK(text, "data.tokenizer=", name,
             " is made of one text, and this task has records; take another one, such as byte");
  return find_tokenizer(name, text());
}

std::vector<std::int64_t> CatalogModel::end_tokens() const {
  const std::string folder = this->folder();
  return folder.empty() ? std::vector<std::int64_t>() : end_tokens_of(folder);
}

std::string CatalogModel::run_config() const { return in_run(kRunModel); }

std::string CatalogModel::tokenizer_folder(const std::string& name) const {
  return tokenizer_name(name) == kModelTokenizer ? site_.settings.text("model.from") : name;
}

void CatalogModel::add_files(const ModelSpec& spec, const TokenizerPtr& tokenizer, const std::string& name, Data& data,
                             const HeadOptions& head) const {
  const bool has_form = spec.why_no_hub_config().empty();
  data.files.emplace_back(kRunTokenizer, tokenizer ? tokenizer->to_json() : "");
  data.derived.emplace_back(kRunModel, has_form ? kept_config(spec, folder(), head) : "");
  for (auto& file : kept_adapter_files(site_.settings, run_for_adapters())) data.derived.push_back(std::move(file));
  if (!site_.run.empty()) return;
  const std::string meant = tokenizer_name(name);
  const bool is_named = !meant.empty() && meant != kModelTokenizer;
  const std::string kept = is_named ? run_for_tokenizer(meant) : folder();
  for (auto& file :
       kept_hub_files(has_form ? folder() : "", kept.empty() ? meant : kept, has_form ? tokenizer : nullptr))
    data.derived.push_back(std::move(file));
  const auto tell = [&](std::string_view key, const std::string& stand_in) {
    if (!stand_in.empty())
      data.note += concat(data.note.empty() ? "" : "\n", key, " '", printable(site_.settings.text(key), 256),
                          "' is gone, and what '", stand_in, "' keeps of it stands in its place");
  };
  tell(kModelFromKey, run_for_model());
  tell(kLoraFromKey, run_for_adapters());
  if (is_named) tell(kTokenizerNameKey, run_for_tokenizer(meant));
}

LoraOptions CatalogModel::lora() const { return lora_options(site_.settings, run_for_adapters()); }

void CatalogModel::adapt(Module& model, const ModelSpec& spec, bool with_heads) const {
  const HubNaming& naming = spec.entry().naming;
  add_lora(model, with_heads ? keel::with_heads(lora(), model, naming) : lora(), naming);
}

Task::Beginning CatalogModel::beginning(Module& model, const ModelSpec& spec, const std::string& head_remedy) const {
  return beginning_of(site_.settings, spec, model,
                      {.lora = lora(),
                       .has_weights = !site_.run.empty(),
                       .is_gone = run_for_model() != site_.run,
                       .head_remedy = head_remedy});
}

HubFiles CatalogModel::hub_files(const ModelSpec& spec, const TokenizerPtr& tokenizer, const std::string& name,
                                 DType dtype, const HeadOptions& head, const ChatFiles& chat) const {
  const std::string kept = run_config();
  return keel::hub_files(spec, {.kept = kept.empty() ? "" : read_text_file(kept),
                                .tokenizer = tokenizer,
                                .tokenizer_name = tokenizer_folder(name),
                                .dtype = dtype,
                                .head = head,
                                .run = site_.run,
                                .chat = chat});
}

void complain_of_tokenizer(const Settings& settings, std::vector<SettingsComplaint>& complaints) {
  if (settings.text(kTokenizerNameKey) == kModelTokenizer && settings.text(kModelFromKey) == "none")
    complaints.push_back({{kTokenizerNameKey, kModelFromKey}, kNoModelsTokenizer});
}

}  // namespace keel
