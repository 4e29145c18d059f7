#pragma once
// The keys of a program without tasks of its own.

#include <memory>

#include "keel/runtime/language.h"

namespace keel {

class ConfigKeys;

// Made once; never changes.
const std::shared_ptr<const ConfigKeys>& keel_keys();

}  // namespace keel
