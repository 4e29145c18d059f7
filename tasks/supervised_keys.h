#pragma once
// Keys of the task `supervised`, and what is wrong with values of several of them.

#include <vector>

#include "keel/config/settings.h"

namespace keel {

std::vector<KeyRow> supervised_keys();
std::vector<SettingsComplaint> complain_of_supervised(const Settings& settings);

}  // namespace keel
