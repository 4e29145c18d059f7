#pragma once
// Trackers as a configuration names them.

#include <vector>

#include "keel/config/typed_list.h"
#include "keel/trainer/tracker_host.h"

namespace keel {

// The keys of each type: its own, and those that all have.
const TypedList& tracker_types();

// A second one of a type is called csv-2. Touches nothing outside. An Error says what is wrong with a
// tracker's settings.
std::vector<HostedTracker> make_trackers(const std::vector<TypedSettings>& list);

}  // namespace keel
