#include "keel/tasks/hub_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>

#include "keel/models/hub_tensors.h"
#include "keel/models/lora.h"
#include "keel/models/model_keys.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/hub_cache.h"
#include "keel/runtime/json_file.h"
#include "keel/runtime/printable.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "keel/tokenizers/plain_tokenizers.h"
#include "keel/tokenizers/tokenizer_files.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr const char *kTokenizerConfig = "tokenizer_config.json", *kChatTemplate = "chat_template.jinja",
                     *kGenerationConfig = "generation_config.json";
constexpr std::array<std::string_view, 3> kTokenNumbers = {"bos_token_id", "eos_token_id", "pad_token_id"};

// What special tokens are called in published vocabularies, the likelier ones first.
struct SpecialRole {
  std::string_view role;
  std::vector<std::string_view> texts;
};
const std::vector<SpecialRole>& special_roles() {
  static const std::vector<SpecialRole> roles = {{"bos_token", {"<s>", "<|begin_of_text|>", "<|endoftext|>"}},
                                                 {"eos_token", {"</s>", "<|end_of_text|>", "<|endoftext|>"}},
                                                 {"unk_token", {"<unk>", "[UNK]"}},
                                                 {"pad_token", {"<pad>", "[PAD]"}},
                                                 {"cls_token", {"[CLS]"}},
                                                 {"sep_token", {"[SEP]"}},
                                                 {"mask_token", {"<mask>", "[MASK]"}}};
  return roles;
}

// Of the tokenizer's vocabulary; none: no such token.
std::optional<std::string_view> special_text(const Tokenizer& tokenizer, const SpecialRole& special) {
  for (const std::string_view text : special.texts)
    if (tokenizer.token_of(text)) return text;
  return std::nullopt;
}

std::string_view torch_name(DType dtype) {
  return dtype == DType::f32 ? "float32" : dtype == DType::bf16 ? "bfloat16" : "float16";
}

// The folder of published files that the name means; empty: it means none.
std::string published_folder_of(const std::string& name) {
  if (name.empty() || is_plain_tokenizer(name)) return {};
  const std::string place = with_home_folder(name);
  return fs::is_directory(place) ? place : fs::exists(place) ? std::string() : hub_folder(name);
}

bool is_same_tokenizer(const std::string& folder, const Tokenizer& tokenizer) {
  try {
    return load_tokenizer(folder)->to_json() == tokenizer.to_json();
  } catch (const Error&) { return false; }
}

Json own_tokenizer_config(const Tokenizer& tokenizer, std::int64_t length) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"model_max_length", length},
                 {"clean_up_tokenization_spaces", false}};
  for (const SpecialRole& each : special_roles())
    if (const auto text = special_text(tokenizer, each)) config[each.role] = *text;
  return config;
}

// Null: the folder has none of this name, or is none.
std::optional<std::string> kept_file(const std::string& folder, std::string_view name) {
  const std::string place = concat(folder, '/', name);
  return !folder.empty() && fs::exists(place) ? std::optional(read_text_file(place)) : std::nullopt;
}

// Where the files beside the tokenizer come from; empty: they are made, or there are none.
std::string add_tokenizer(const HubFilesOptions& options, std::int64_t length, HubFiles& all) {
  if (!options.tokenizer) {
    all.notes.emplace_back("the run has no tokenizer, and none is written");
    return {};
  }
  const Tokenizer& tokenizer = *options.tokenizer;
  const std::string folder = published_folder_of(options.tokenizer_name);
  if (!folder.empty() && is_same_tokenizer(folder, tokenizer)) {
    for (const std::string& name : tokenizer_files(folder))
      all.files.emplace_back(name, read_text_file(concat(folder, '/', name)));
    return folder;
  }
  const std::string json = tokenizer.to_json();
  if (json.find("\"keel tokenizer\"") != std::string::npos) {
    all.notes.push_back(concat("no tokenizer is written: keel's tokenizer '", tokenizer.name(),
                               "' has no form that transformers reads"));
    return {};
  }
  all.files.emplace_back("tokenizer.json", json);
  const std::size_t before = all.files.size();
  for (const std::string_view name : files_beside_tokenizer())
    if (const auto kept = kept_file(options.run, name)) all.files.emplace_back(name, *kept);
  if (all.files.size() > before) return options.run;
  all.files.emplace_back("tokenizer_config.json", own_tokenizer_config(tokenizer, length).dump(2) + "\n");
  if (folder.empty() && options.tokenizer_name.find('/') != std::string::npos &&
      !fs::exists(with_home_folder(options.tokenizer_name)))
    all.notes.push_back(concat("'", options.tokenizer_name,
                               "' is not there any more, and the run has kept nothing but its tokenizer: "
                               "tokenizer_config.json has the special tokens that keel finds in it"));
  return {};
}

std::string* file_named(HubFiles& all, std::string_view name) {
  const auto found = std::ranges::find(all.files, name, &std::pair<std::string, std::string>::first);
  return found == all.files.end() ? nullptr : &found->second;
}

// Of a tokenizer_config.json: a text of Jinja, or several by name.
std::string templates_in(const Json& templates) {
  if (templates.is_string()) return templates.string();
  std::string all;
  if (templates.is_array())
    for (const Json& each : templates.items())
      if (const Json* text = each.find("template"); text != nullptr && text->is_string()) all += text->string() + '\n';
  return all;
}

// How chats are written, where the tokenizer's files do not say it, or say another form than the one that was learnt.
// `from`: where those files come from; empty: nowhere.
void add_chat_template(const HubFilesOptions& options, const std::string& from, std::int64_t length, HubFiles& all) {
  if (options.chat.jinja.empty() || file_named(all, "tokenizer.json") == nullptr) return;
  if (file_named(all, kTokenizerConfig) == nullptr)
    all.files.emplace_back(kTokenizerConfig, own_tokenizer_config(*options.tokenizer, length).dump(2) + "\n");
  std::string& text = *file_named(all, kTokenizerConfig);
  Json config = parse_json_file(text, from.empty() ? kTokenizerConfig : concat(from, '/', kTokenizerConfig));
  const std::string* beside = file_named(all, kChatTemplate);
  const Json* inside = config.find("chat_template");
  const bool has_one = beside != nullptr || (inside != nullptr && !inside->is_null());
  const std::string before = beside != nullptr ? *beside : has_one ? templates_in(*inside) : std::string();
  const auto has = [&](const std::string& text) { return before.find(text) != std::string::npos; };
  const bool is_alike = !options.chat.end.empty() && has(options.chat.end);
  const bool is_begun_alike = options.chat.system.empty() || std::ranges::any_of(options.chat.system, has);
  if (has_one && (before == options.chat.jinja || (is_alike && is_begun_alike))) return;
  if (has_one)
    all.notes.push_back(concat("the chat template of the tokenizer's folder ",
                               is_alike ? "does not begin chats by data.system" : "is another than data.template",
                               "; the one that was learnt is written in its place"));
  std::erase_if(all.files, [](const auto& file) { return file.first == kChatTemplate; });
  config["chat_template"] = options.chat.jinja;
  if (!options.chat.end.empty() && !config.contains("eos_token")) config["eos_token"] = options.chat.end;
  *file_named(all, kTokenizerConfig) = config.dump(2) + "\n";
}

// The folder's own generation_config.json, as far as the run has kept it, with what ends an answer.
std::string generation_config(const HubFilesOptions& options, const Json& config) {
  const std::optional<std::string> kept = kept_file(options.run, kGenerationConfig);
  Json generation =
      kept ? parse_json_file(*kept, concat(options.run, '/', kGenerationConfig)) : Json({{"_from_model_config", true}});
  for (const std::string_view key : kTokenNumbers)
    if (const Json* number = config.find(key); number != nullptr && !generation.contains(key))
      generation[key] = *number;
  const auto end =
      options.tokenizer && !options.chat.end.empty() ? options.tokenizer->token_of(options.chat.end) : std::nullopt;
  if (!end) return generation.dump(2) + "\n";
  std::vector<Json> ends;
  if (const Json* before = generation.find("eos_token_id"); before != nullptr && !before->is_null()) {
    if (before->is_array()) ends = before->items();
    else ends = {*before};
  }
  const std::int64_t token = *end;
  if (std::ranges::none_of(ends, [&](const Json& each) { return each.is_integer() && each.integer() == token; }))
    ends.emplace_back(token);
  generation["eos_token_id"] = ends.size() == 1 ? ends.front() : Json(ends);
  // It says more than the model's config.json, which would stand for it otherwise.
  generation["_from_model_config"] = false;
  return generation.dump(2) + "\n";
}

// Numbers of special tokens, as far as the tokenizer has them.
void add_token_numbers(const Tokenizer& tokenizer, Json& config) {
  for (const SpecialRole& each : special_roles()) {
    const std::string key = concat(each.role, "_id");
    const auto text = special_text(tokenizer, each);
    if (text && std::ranges::find(kTokenNumbers, key) != kTokenNumbers.end() && !config.contains(key))
      config[key] = std::int64_t{*tokenizer.token_of(*text)};
  }
}

std::shared_ptr<const AdapterForm> adapter_form(const Settings& settings, const ModelSpec& spec, Module& model,
                                                const LoraOptions& options, bool begins) {
  const HubNaming& naming = spec.entry().naming;
  if (options.rank == 0) return nullptr;
  const std::string& from = settings.text("model.from");
  const AdapterUse use{.base = from == "none" ? "" : from,
                       .task_type = spec.entry().kind == ModelKind::decoder ? "CAUSAL_LM" : ""};
  const std::string& beginning = settings.text("model.lora_from");
  return std::make_shared<AdapterForm>(AdapterForm{.names = adapter_names(model, naming),
                                                   .config = adapter_config(model, options, naming, use),
                                                   .weights = begins && beginning != "none" ? beginning : ""});
}

}  // namespace

std::string kept_config(const ModelSpec& spec, const std::string& from, const HeadOptions& head) {
  Json config = spec.hub_config(head);
  if (const std::string place = concat(from, "/config.json"); !from.empty() && fs::exists(place)) {
    const Json before = read_json_file(place);
    for (const std::string_view key : kTokenNumbers)
      if (const Json* number = before.find(key); number != nullptr && !number->is_null()) config[key] = *number;
  }
  return config.dump(2) + "\n";
}

std::vector<std::int64_t> end_tokens_of(const std::string& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string place = concat(folder, '/', name);
    if (!fs::exists(place)) continue;
    const Json config = read_json_file(place);
    KEEL_CHECK(config.is_object(), "'", place, "' is no object, {\"eos_token_id\": ...}, but ",
               printable(config.dump(), 64));
    const Json* ends = config.find("eos_token_id");
    if (ends == nullptr || ends->is_null()) continue;
    std::vector<std::int64_t> tokens;
    const auto take = [&](const Json& number) {
      KEEL_CHECK(number.is_integer(), "'", place, "': eos_token_id must be a token's number or a list of such, got ",
                 printable(ends->dump(), 64));
      tokens.push_back(number.integer());
    };
    if (ends->is_array())
      for (const Json& each : ends->items()) take(each);
    else take(*ends);
    return tokens;
  }
  return {};
}

Task::Beginning beginning_of(const Settings& settings, const ModelSpec& spec, Module& model,
                             const BeginningOptions& options) {
  const std::string& from = settings.text("model.from");
  const bool begins = !options.has_weights && from != "none" && settings.flag("model.weights");
  const bool has_form = spec.why_no_hub_config().empty();
  auto names = std::make_shared<HubNames>(has_form ? hub_names(model, spec.entry().naming) : HubNames());
  names->head_remedy = options.head_remedy;
  return {.weights = !begins           ? ""
                     : options.is_gone ? from
                                       : hub_model_folder(settings),
          .hub = has_form ? std::move(names) : nullptr,
          .adapters = has_form ? adapter_form(settings, spec, model, options.lora, !options.has_weights) : nullptr};
}

std::vector<std::pair<std::string, std::string>> kept_adapter_files(const Settings& settings, const std::string& run) {
  const std::string& from = settings.text("model.lora_from");
  return {
      {kAdapterConfig, from == "none" ? "" : read_text_file(concat(run.empty() ? from : run, '/', kAdapterConfig))}};
}

std::vector<std::pair<std::string, std::string>> kept_hub_files(const std::string& model_folder,
                                                                const std::string& tokenizer_name,
                                                                const TokenizerPtr& tokenizer) {
  std::vector<std::pair<std::string, std::string>> kept;
  const auto keep = [&](const std::string& folder, std::string_view name) {
    kept.emplace_back(name, kept_file(folder, name).value_or(""));
  };
  keep(model_folder, kGenerationConfig);
  const std::string folder = published_folder_of(tokenizer_name);
  const bool is_its = tokenizer && !folder.empty() && is_same_tokenizer(folder, *tokenizer);
  for (const std::string_view name : files_beside_tokenizer()) keep(is_its ? folder : "", name);
  return kept;
}

HubFiles hub_files(const ModelSpec& spec, const HubFilesOptions& options) {
  HubFiles all{.why_not = spec.why_no_hub_config()};
  if (!all.why_not.empty()) return all;
  Json config = options.kept.empty() ? spec.hub_config(options.head)
                                     : parse_json_file(options.kept, concat(options.run, "/config.json"));
  if (options.tokenizer) add_token_numbers(*options.tokenizer, config);
  config["torch_dtype"] = torch_name(options.dtype);
  all.files.emplace_back("config.json", config.dump(2) + "\n");
  if (spec.entry().kind == ModelKind::decoder)
    all.files.emplace_back(kGenerationConfig, generation_config(options, config));
  const std::string from = add_tokenizer(options, spec.block(), all);
  add_chat_template(options, from, spec.block(), all);
  return all;
}

}  // namespace keel
