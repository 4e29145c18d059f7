#include "keel/models/catalog.h"

#include <algorithm>

#include "keel/models/decoder_spec.h"
#include "keel/models/encoder_spec.h"
#include "keel/models/gpt_spec.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {

std::unique_ptr<CausalModel> ModelSpec::make_decoder() const {
  throw Error(concat(entry_.name, " is no decoder, which reads one token after the other"), ErrorKind::unsupported);
}

std::unique_ptr<EncoderModel> ModelSpec::make_encoder(const HeadOptions& /*head*/) const {
  throw Error(concat(entry_.name, " is no encoder, which sees each token among all others"), ErrorKind::unsupported);
}

std::span<const ModelEntry> keel_models() {
  static const std::vector<ModelEntry> models = [] {
    std::vector<ModelEntry> all = {gpt_entry()};
    for (ModelEntry& entry : encoder_entries()) all.push_back(std::move(entry));
    for (ModelEntry& entry : decoder_entries()) all.push_back(std::move(entry));
    return all;
  }();
  return models;
}

const ModelEntry* find_model(std::string_view name) {
  const auto models = keel_models();
  const auto found = std::ranges::find(models, name, &ModelEntry::name);
  return found == models.end() ? nullptr : &*found;
}

namespace {

const ModelEntry& entry_of(const HubConfig& config) {
  std::string known;
  for (const ModelEntry& entry : keel_models()) {
    if (entry.hub_type == config.model_type()) return entry;
    known += concat(known.empty() ? "" : ", ", entry.hub_type);
  }
  throw Error(concat(config.place(), ": model_type: keel has no model '", printable(config.model_type(), 64),
                     "'; it has ", known),
              ErrorKind::unsupported);
}

}  // namespace

ModelSpecPtr read_hub_spec(std::string_view text, const std::string& place, std::span<const std::string> allowed) {
  HubConfig config(text, place);
  ModelSpecPtr spec = entry_of(config).of_hub(config);
  config.check_all_read(allowed);
  return spec;
}

ModelKind hub_kind(std::string_view text, const std::string& place) { return entry_of(HubConfig(text, place)).kind; }

}  // namespace keel
