#pragma once
// Where the values of a run that goes on differ from those of its checkpoint.

#include <string>
#include <string_view>
#include <vector>

#include "keel/config/schema.h"

namespace keel {

struct ConfigChange {
  std::string_view key;     // "optimizer.lr"
  std::string before, now;  // as YAML
};

// The keys of that kind whose values differ. Where a choice of the same kind has changed, such as optimizer.type, keys
// that apply to one side alone are not listed beside it.
std::vector<ConfigChange> changes_between(const Schema& schema, const Settings& before, const Settings& now,
                                          OnResume kind);

}  // namespace keel
