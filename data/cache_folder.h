#pragma once
// Where keel keeps what it has made of files of others.

#include <string>

#include "keel/runtime/language.h"

namespace keel {

// The folder that is wanted; where that is empty, $XDG_CACHE_HOME/keel or ~/.cache/keel; empty where neither is known.
std::string folder_for_caches(const std::string& wanted);

}  // namespace keel
