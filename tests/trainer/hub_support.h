#pragma once
// A small GPT-2 in the form that transformers writes, and runs that begin with it.

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "keel/data/safetensors.h"
#include "keel/dist/checkpoint/hub_export.h"
#include "keel/dist/checkpoint/hub_weights.h"
#include "keel/kernels/elementwise.h"
#include "keel/models/hub_tensors.h"
#include "keel/runtime/random.h"
#include "keel/trainer/checkpoint_list.h"
#include "keel/trainer/hub_form.h"
#include "tests/support.h"
#include "tests/tiny_gpt.h"
#include "tests/trainer/run_support.h"

namespace keel::testing {

inline const std::shared_ptr<const HubNames>& gpt_names() {
  static const auto names = [] {
    Gpt model(tiny_gpt());
    return std::make_shared<const HubNames>(hub_names(model, find_model("gpt")->naming));
  }();
  return names;
}

// The weights of the golden GPT-2 (tests/golden/README.md) as transformers has them: named from "transformer." on, with
// linear layers as (in, out).
inline std::vector<NamedTensor> published_weights(DType dtype = DType::f32) {
  const Context host = context(1);
  std::vector<NamedTensor> tensors;
  for (const HubTensor& each : gpt_names()->tensors) {
    const bool bias = each.parameter.ends_with(".bias");
    const float scale = bias ? 0.1F : 0.2F, offset = each.parameter.find("ln_") != std::string::npos && !bias ? 1 : 0;
    std::vector<float> values(static_cast<std::size_t>(product(each.shape)));
    fill_uniform(values, 1, each.parameter);
    for (float& value : values) value = (2 * value - 1) * scale + offset;
    Tensor whole = from_values(host, values, each.transposed ? Dims{each.shape[1], each.shape[0]} : each.shape);
    if (each.transposed) whole = kernels::clone(whole.transpose(0, 1));
    tensors.emplace_back(each.name, kernels::cast(whole, dtype));
  }
  return tensors;
}

inline constexpr const char* kPublishedConfig = R"({
  "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 16,
  "n_ctx": 16, "vocab_size": 61, "resid_pdrop": 0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "eos_token_id": 5,
  "bos_token_id": 5, "task_specific_params": {"text-generation": {"do_sample": true}}})";

// Of words, which begins a text by <s>: for such a folder.
inline constexpr const char* kPublishedTokenizer = R"({
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [{"id": 1, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true}],
  "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
  "decoder": null,
  "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "<s>": 1, "line": 2, "3": 3, "4": 4}, "unk_token": "<unk>"}})";

// A folder with config.json and weights.
inline std::string published(const TemporaryFolder& place,
                             const std::vector<NamedTensor>& tensors = published_weights(),
                             const std::string& name = "hub") {
  const std::string folder = place / name;
  std::filesystem::create_directories(folder);
  write_text_file(folder + "/config.json", kPublishedConfig);
  write_safetensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
  return folder;
}

// One step that moves no number of fp32.
inline Config hub_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more) {
  const std::string text = place / "text.txt";
  if (!std::filesystem::exists(text)) write_text_file(text, sample_text());
  more.insert(more.begin(), {concat("run=", place / run), concat("data.path=", text)});
  return parse_config(R"(
steps: 1
data: {type: text, tokenizer: character}
batch: {global: 4, micro: 2}
optimizer: {lr: 1e-30}
eval: {every: 0}
checkpoint: {every: 0}
threads: 1
)",
                      "still.yaml", more);
}

// The run's newest checkpoint in Hugging Face's form.
inline HubForm exported(const Config& config, const std::string& target, DType dtype = DType::f32,
                        HubFormat format = HubFormat::whole) {
  const Checkpoint checkpoint = find_checkpoint(config.run, std::nullopt, [](std::string_view) {});
  HubForm form = hub_form_of(checkpoint, config.run, "", format, dtype, keel_keys());
  export_hub(checkpoint.path, checkpoint.manifest, target,
             {.tensors = form.tensors, .files = form.files.files, .weights = form.weights, .dtype = dtype});
  return form;
}

inline std::map<std::string, std::vector<double>> tensors_of(const std::string& folder,
                                                             const std::string& file = "model.safetensors") {
  std::map<std::string, std::vector<double>> found;
  for (const auto& [name, values] : SafetensorsFile(folder + "/" + file).views(context(1)))
    found[concat(name, values.shape(), values.dtype())] = doubles(values);
  return found;
}

}  // namespace keel::testing
