#pragma once
// Whether all ranks see the folder that the first one writes.

#include <string>

#include "keel/dist/comm/communicator.h"

namespace keel {

// Every rank calls it. The first one writes a file into the folder, or into the one around it where it has none yet,
// for as long as the others look for it; where it cannot, nothing is checked. A rank that does not see the file is an
// AgreedError of kind io, which names both hosts and what each takes for the folder.
void check_shared_folder(const std::string& folder, Communicator& ranks);

// The same of a checkpoint that all read: they may be copies.
void check_readable_by_all(const std::string& checkpoint, Communicator& ranks);

}  // namespace keel
