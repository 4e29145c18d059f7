#pragma once
// What Open MPI's launcher leaves behind where it is killed with its ranks: folders of sessions, and memory.

#include <string>

namespace keel::cli {

// Removes, of this user's launchers on this host that are gone, the folders ompi.HOST.USER/pid.PROCESS in `temporary`
// and the files vader_segment.HOST.USER.* in `memory`, where ranks see each other's. What some process has open, of
// another container, too, is of a launcher that is at work, and stays; so does all where the file system cannot tell.
void remove_launcher_strays(const std::string& temporary, const std::string& memory = "/dev/shm");

}  // namespace keel::cli
