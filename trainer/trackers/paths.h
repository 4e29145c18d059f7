#pragma once
// Where trackers write.

#include <string>

#include "keel/trainer/tracker.h"

namespace keel {

// A path that is not a full one lies in the run's folder; <name> in it is the run's name.
std::string tracker_path(const RunDescription& run, std::string path);
// Makes the folders that lead to a file. An Error of kind io where that cannot be.
void make_folders_for(const std::string& file);
// What an earlier session has written to the file; empty where there is none. An Error where this session does not go
// on from another one, and the file is there.
std::string text_of_earlier_session(const RunDescription& run, const std::string& file);

}  // namespace keel
