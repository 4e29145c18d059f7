#pragma once
// Trackers as a configuration names them.

#include <string>
#include <utility>
#include <vector>

#include "keel/config/typed_list.h"
#include "keel/trainer/tracker_host.h"

namespace keel {

// The keys of each type: its own, and those that all have.
const TypedList& tracker_types();

// What every run of so many ranks is tagged with: keel's version among them.
std::vector<std::pair<std::string, std::string>> run_tags(int ranks);

// A second one of a type is called csv-2. Touches nothing outside. An Error says what is wrong with a
// tracker's settings.
std::vector<HostedTracker> make_trackers(const std::vector<TypedSettings>& list);

}  // namespace keel
