#pragma once
// Which steps of a training were skipped.

#include <cstdint>
#include <string>

#include "keel/runtime/language.h"

namespace keel {

struct SkippedOfTraining {
  std::int64_t count = 0;       // by the group of ranks that skipped the most
  bool by_all = true;           // every group skipped so many
  std::string none_taken = {};  // why no group took any; empty: some step was taken
  bool operator==(const SkippedOfTraining&) const = default;
};

}  // namespace keel
