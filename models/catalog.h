#pragma once
// The catalog of models: what `model.type` may be, how each is described in a configuration of keel's and in a
// config.json of Hugging Face's, and how its tensors are called there. `keel models` lists it; no other file names a
// model.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/config/settings.h"
#include "keel/models/causal_model.h"
#include "keel/models/encoder_model.h"
#include "keel/models/hub_config.h"

namespace keel {

enum class ModelKind : unsigned char {
  decoder,  // CausalModel: next tokens
  encoder,  // EncoderModel: what each token is, among all others
};

struct ModelEntry;

// What a model is, before it has parameters: its shape.
class ModelSpec {
 public:
  explicit ModelSpec(const ModelEntry& entry) : entry_(entry) {}
  virtual ~ModelSpec() = default;
  ModelSpec(const ModelSpec&) = delete;
  ModelSpec& operator=(const ModelSpec&) = delete;

  const ModelEntry& entry() const { return entry_; }
  virtual std::int64_t vocabulary() const = 0;
  virtual std::int64_t block() const = 0;  // longest sequence, in tokens
  virtual double dropout() const = 0;      // the largest of its probabilities
  // Floating-point operations of training on one token of a sequence of `block` tokens, for a share of a device's peak:
  // 6 N of N parameters, and what each token's attention to those that it sees takes. What is computed again is not
  // counted.
  virtual double training_flops_of_token(std::int64_t parameters) const = 0;
  // config.json of this model with a head, which decoders do not have; reading it gives the same model. An Error where
  // why_no_hub_config() says something.
  virtual Json hub_config(const HeadOptions& head) const = 0;
  Json hub_config() const { return hub_config(HeadOptions{}); }
  // Why this shape has no form of Hugging Face's; empty: it has one.
  virtual std::string why_no_hub_config() const { return {}; }
  // Makes no memory for numbers. The defaults refuse: the model is no decoder, or no encoder.
  virtual std::unique_ptr<CausalModel> make_decoder() const;
  virtual std::unique_ptr<EncoderModel> make_encoder(const HeadOptions& head) const;

 private:
  const ModelEntry& entry_;
};
using ModelSpecPtr = std::unique_ptr<const ModelSpec>;

// How tensors of Hugging Face's files are called, beside what keel's modules say (keel/models/hub_tensors.h).
struct HubNaming {
  // What base models' files leave out in front of a name ("transformer."); empty: nothing. Names in a file and in a
  // model are the same with it and without it.
  std::string_view base_prefix = {};
  // Endings of weights that lie there as (in, out): "attn.c_attn.weight|mlp.c_fc.weight".
  std::string_view transposed = {};
  // Endings of tensors that are computed from others or from the shape, and are left out: "rotary_emb.inv_freq".
  std::string_view ignored = {};
  // Endings of names in older files, and what they are called now: "LayerNorm.gamma=LayerNorm.weight|...".
  std::string_view renamed = {};
  // Beginnings, behind base_prefix, of the names of heads: "cls.|classifier.|pooler.". A file need not have those that
  // the model has, which begin at random then, and may have others.
  std::string_view heads = {};
};

struct ModelEntry {
  std::string_view name;     // model.type
  std::string_view summary;  // one line
  ModelKind kind = ModelKind::decoder;
  // Keys of the section `model` that it has beside the common ones. They apply where model.type is `name`; two models
  // may have the same key with other defaults.
  std::vector<KeyRow> rows = {};
  // Shapes for model.name, with what they decide.
  struct Published {
    std::string_view name;
    std::int64_t layers, heads, width;
    std::int64_t block = 1024, vocabulary = 50257;  // unless they are given
  };
  std::vector<Published> published = {};
  // By keys of the section `model`. `vocabulary`: of the data; model.vocabulary may have more.
  ModelSpecPtr (*of_settings)(const Settings& settings, std::int64_t vocabulary) = nullptr;
  // The config.json's model_type.
  std::string_view hub_type = {};
  ModelSpecPtr (*of_hub)(HubConfig& config) = nullptr;
  HubNaming naming = {};
  // As TaskEntry::complain, of the keys of the section `model`.
  std::vector<SettingsComplaint> (*complain)(const Settings& settings) = nullptr;
};

// keel's models, in the order of documentation.
std::span<const ModelEntry> keel_models();
// Null: there is none of this name.
const ModelEntry* find_model(std::string_view name);

// What a config.json says. A model that keel does not have, and a key that changes what is computed and that it does
// not know, are an Error; `allowed` are keys that the user answers for.
ModelSpecPtr read_hub_spec(std::string_view text, const std::string& place, std::span<const std::string> allowed = {});

// Of which kind the model is that a config.json says; likewise.
ModelKind hub_kind(std::string_view text, const std::string& place);

}  // namespace keel
