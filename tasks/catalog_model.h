#pragma once
// What tasks that train a model of the catalog on texts have in common: its shape, where its weights begin, its
// tokenizer, and the files that a run keeps of all that.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "keel/config/settings.h"
#include "keel/models/catalog.h"
#include "keel/models/encoder_model.h"
#include "keel/models/lora.h"
#include "keel/nn/module.h"
#include "keel/tasks/hub_files.h"
#include "keel/tasks/task.h"
#include "keel/tokenizers/tokenizer.h"

namespace keel {

class CatalogModel {
 public:
  explicit CatalogModel(const TaskSite& site) : site_(site) {}

  // Whether model.from names a model.
  bool is_published() const;
  // As model_spec(). `vocabulary`: of the data; 0: not known, or model.from says it.
  ModelSpecPtr spec(std::int64_t vocabulary) const;
  // Where its config.json is: in model.from, in the run that is asked, or, where the folder of model.from is gone, in
  // the run that goes on. Empty: there is none.
  std::string folder() const;
  // Tokens of a row at most.
  std::int64_t positions() const;

  // Of the run that is asked.
  bool has_run_tokenizer() const;
  TokenizerPtr run_tokenizer() const;
  // What the name means: of "auto" it is "model" where model.from names a model, else "byte".
  std::string tokenizer_name(const std::string& name) const;
  // That of the run, if there is one; else what `name` means: "model" is the tokenizer of model.from, anything else but
  // "auto" is as find_tokenizer() has it. A folder of model.from without a tokenizer is an Error that says what to do.
  // `text`: what one is made of that is made of a text, or else it is an Error.
  TokenizerPtr tokenizer_of(const std::string& name, const std::function<std::string()>& text = {}) const;

  // As find_tokenizer(), of no text; of one that is gone, what the run that goes on keeps.
  TokenizerPtr named_tokenizer(const std::string& name) const;

  // Tokens that end a text: eos_token_id of the folder's generation_config.json, or else of its config.json. Of the run
  // that is asked, or of model.from; none: they say none.
  std::vector<std::int64_t> end_tokens() const;

  LoraOptions lora() const;
  // Gives a model of this shape the adapters that the settings say; `with_heads`: its heads are trained beside them.
  void adapt(Module& model, const ModelSpec& spec, bool with_heads = false) const;

  // The config.json of the run that is asked; empty: it has none, or none is asked.
  std::string run_config() const;
  // What a run keeps of it, and a note on what is taken from the run that goes on. Null: there is no tokenizer. `name`:
  // what data.tokenizer says; empty: nothing that has files. `head`: of an encoder.
  void add_files(const ModelSpec& spec, const TokenizerPtr& tokenizer, const std::string& name, Data& data,
                 const HeadOptions& head = {}) const;
  // `head_remedy`: as HubNames::head_remedy.
  Task::Beginning beginning(Module& model, const ModelSpec& spec, const std::string& head_remedy = {}) const;
  // `name`, `head`: likewise. `chat`: of a decoder that answers chats.
  HubFiles hub_files(const ModelSpec& spec, const TokenizerPtr& tokenizer, const std::string& name, DType dtype,
                     const HeadOptions& head = {}, const ChatFiles& chat = {}) const;

 private:
  // Folders of model_spec() and lora_options(); empty: what the settings name counts.
  std::string run_for_model() const;
  std::string run_for_adapters() const;
  std::string run_for_tokenizer(const std::string& name) const;  // which is a name of find_tokenizer()
  // The run that is asked; else the one that goes on, where what it kept as `file` is no longer where settings say.
  // It must have been named by the same value of `key` there.
  std::string kept_instead(std::string_view key, bool is_there, const char* file) const;
  std::string tokenizer_folder(const std::string& name) const;  // whose files are looked for; empty: none are
  std::string in_run(std::string_view file) const;              // empty: the run has none, or none is asked

  const TaskSite& site_;
};

// What data.tokenizer is where it is not given: the tokenizer of model.from, or, of tasks that have it, `auto`, which
// is byte where there is no model.from.
inline constexpr std::string_view kModelTokenizer = "model", kAutoTokenizer = "auto";

// Where data.tokenizer is `model`, and there is no model.from.
void complain_of_tokenizer(const Settings& settings, std::vector<SettingsComplaint>& complaints);

}  // namespace keel
