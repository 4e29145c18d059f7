#pragma once
// Keys of the task `fine_tuning`.

#include <vector>

#include "keel/config/settings.h"

namespace keel {

std::vector<KeyRow> fine_tuning_keys();
// Settings that contradict each other.
std::vector<SettingsComplaint> complain_of_fine_tuning(const Settings& settings);

}  // namespace keel
