#pragma once
// Whether all ranks see the folder that the first one writes.

#include <chrono>
#include <string>

#include "keel/dist/comm/communicator.h"

namespace keel {

// No cache of a file system has a name that nobody has asked for.
inline constexpr std::chrono::seconds kSeenWithin{2};

// Every rank calls it. The first one writes a file into the folder, or into the one around it where it has none yet,
// for as long as the others look for it; where it cannot, nothing is checked. A rank that does not see the file is an
// AgreedError of kind io, which names both hosts and what each takes for the folder.
void check_shared_folder(const std::string& folder, Communicator& ranks,
                         std::chrono::milliseconds within = kSeenWithin);

// The same of a checkpoint that all read: they may be copies.
void check_readable_by_all(const std::string& checkpoint, Communicator& ranks,
                           std::chrono::milliseconds within = kSeenWithin);

}  // namespace keel
