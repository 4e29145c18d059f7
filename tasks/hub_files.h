#pragma once
// Small files of a folder of Hugging Face's form: config.json, generation_config.json and the tokenizer's.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "keel/models/catalog.h"
#include "keel/models/encoder_model.h"
#include "keel/models/lora.h"
#include "keel/tasks/task.h"
#include "keel/tokenizers/tokenizer.h"

namespace keel {

// The config.json that a run keeps. Numbers of special tokens are those that the config.json of the folder `from` has:
// of the model that it began with, or of the run whose model is asked; empty, or without one: none. The same text at
// every call. `head`: of an encoder.
std::string kept_config(const ModelSpec& spec, const std::string& from, const HeadOptions& head = {});

// Tokens that end a text: eos_token_id, a number or a list of them, of the folder's generation_config.json, or else of
// its config.json; none: they say none. Anything else there is an Error.
std::vector<std::int64_t> end_tokens_of(const std::string& folder);

struct BeginningOptions {
  LoraOptions lora = {};         // adapters that the model has
  bool has_weights = false;      // of a run whose model is asked: nothing begins
  bool is_gone = false;          // the folder of model.from is; only a run that goes on needs none
  std::string head_remedy = {};  // as HubNames::head_remedy
};
// Where a task's model of the catalog begins, and how others' files hold it: for Task::beginning().
Task::Beginning beginning_of(const Settings& settings, const ModelSpec& spec, Module& model,
                             const BeginningOptions& options);

// What a run keeps of model.lora_from: its adapter_config.json, by name and text, which is empty without that key.
// `run`: of the task's site.
std::vector<std::pair<std::string, std::string>> kept_adapter_files(const Settings& settings, const std::string& run);

// What a run keeps of the small files of the folders that it began with, which may have moved when its model is
// written: generation_config.json of the model's, and what stands beside the tokenizer of the other, where that is this
// one. Empty: there is no such folder. All that a run may keep is named; the text of what this one does not is empty.
std::vector<std::pair<std::string, std::string>> kept_hub_files(const std::string& model_folder,
                                                                const std::string& tokenizer_name,
                                                                const TokenizerPtr& tokenizer);

// Of a model that answers chats.
struct ChatFiles {
  std::string end = {};    // the token that ends an answer; empty: no token does
  std::string jinja = {};  // how a chat is written; empty: the model answers none
  // A template that begins chats by the system's message of `jinja` has one of these texts; none: there is no such
  // message.
  std::vector<std::string> system = {};
};

struct HubFilesOptions {
  std::string kept = {};        // config.json of the run; empty: it has none, as those before there were any
  TokenizerPtr tokenizer = {};  // null: the model has none
  // What data.tokenizer says: a folder or a name in the local cache, whose own files are taken where they are the same
  // tokenizer.
  std::string tokenizer_name = {};
  DType dtype = DType::f32;  // of the weights
  HeadOptions head = {};     // of an encoder
  std::string run = {};      // where kept_hub_files() are; empty: nowhere
  ChatFiles chat = {};
};
// A tokenizer that other programs cannot read is left out, with a note. The tokenizer's own chat template stays where
// it ends answers and begins chats as `chat` does; else that of `chat` stands in its place, with a note. A file that is
// no JSON is an Error that names it.
HubFiles hub_files(const ModelSpec& spec, const HubFilesOptions& options);

}  // namespace keel
