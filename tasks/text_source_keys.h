#pragma once
// Keys of files that language is learnt from: one text, files of tokens, or a mixture of several.

#include <cstdint>
#include <string_view>
#include <vector>

#include "keel/config/settings.h"
#include "keel/data/mixture.h"
#include "keel/tasks/data_keys.h"

namespace keel {

// data.path, data.mixture and data.stages, where data.type is text, tokens or mixture.
std::vector<KeyRow> text_source_keys();
// data.validation and the keys of tasks/data_keys.h; those of documents where `documents` holds.
std::vector<KeyRow> text_validation_keys(const KeyCondition& documents);
// What their values ask of each other. `has_documents`: texts are read document by document.
std::vector<SettingsComplaint> complain_of_text_sources(const Settings& settings, bool has_documents);

// Those of data.stages; none: the sources' own weights hold. `steps`: of the whole run, which parts of it are of; an
// Error where there is such a part, and 0 steps.
std::vector<MixtureStage> mixture_stages(const Settings& settings, std::int64_t steps);

}  // namespace keel
