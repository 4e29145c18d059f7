#pragma once
// Files of other trainers, and what a user says beside them.

#include <string>
#include <vector>

#include "keel/runtime/error.h"

namespace keel::testing {

using Words = std::vector<std::string>;

inline std::string golden(const std::string& name) { return concat(KEEL_SOURCE_DIR "/tests/golden/foreign/", name); }

// What the user says beside a file that does not say what is trained.
inline const Words kAdditions = {"data.type=addition", "steps=3", "model={layers: 1, heads: 2, width: 16, block: 16}"};

inline Words small(Words more) {
  more.insert(more.begin(), kAdditions.begin(), kAdditions.end());
  return more;
}

}  // namespace keel::testing
