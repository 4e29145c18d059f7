#pragma once
// Removing a folder that others still use.

#include <string>

#include "keel/runtime/language.h"

namespace keel {

// Removes a folder, also while others make files in it or remove it, too. What cannot be removed stays.
void remove_folder(const std::string& path) noexcept;

}  // namespace keel
