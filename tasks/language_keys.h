#pragma once
// Keys of the task `language`.

#include <vector>

#include "keel/config/settings.h"

namespace keel {

std::vector<KeyRow> language_keys();
// Settings that contradict each other.
std::vector<SettingsComplaint> complain_of_language(const Settings& settings);

}  // namespace keel
