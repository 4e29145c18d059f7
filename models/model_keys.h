#pragma once
// Keys of the section `model`, for tasks that train a model of the catalog.

#include <cstdint>
#include <string>
#include <vector>

#include "keel/models/catalog.h"

namespace keel {

// model.from, model.type and the keys of all models of a kind. `standard`: what model.type is where it is not given.
std::vector<KeyRow> model_keys(ModelKind kind, std::string_view standard);
std::vector<SettingsComplaint> complain_of_model(const Settings& settings);

// The model that the keys describe: of model.from, its config.json. `vocabulary` is that of the data; 0: not known. A
// model with fewer rows is an Error. `run`: folder of a run whose model is asked, and whose config.json counts then.
ModelSpecPtr model_spec(const Settings& settings, std::int64_t vocabulary, const std::string& run = {});

// The longest sequence that is read: model.block, or what config.json allows, but no more than 1,024, where that is 0.
std::int64_t sequence_length(const Settings& settings, const std::string& run = {});

// The folder of model.from: itself, or that of a name in the local cache; empty: there is no model.from. One that is
// not there is an Error that says how to fetch it.
std::string hub_model_folder(const Settings& settings);
// Whether there is such a folder.
bool has_hub_model(const Settings& settings);

}  // namespace keel
