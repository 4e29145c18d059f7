#pragma once
// The name of this machine, for messages.

#include <string>

#include "keel/runtime/language.h"

namespace keel {

std::string host_name();

}  // namespace keel
