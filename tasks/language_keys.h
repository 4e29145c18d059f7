#pragma once
// Keys of the task `language`.

#include <cstdint>
#include <vector>

#include "keel/config/settings.h"
#include "keel/data/mixture.h"

namespace keel {

std::vector<KeyRow> language_keys();
// Settings that contradict each other.
std::vector<SettingsComplaint> complain_of_language(const Settings& settings);

// Those of data.stages; none: the sources' own weights hold. `steps`: of the whole run, which parts of it are of; an
// Error where there is such a part, and 0 steps.
std::vector<MixtureStage> mixture_stages(const Settings& settings, std::int64_t steps);

}  // namespace keel
