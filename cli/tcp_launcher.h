#pragma once
// keel's own launcher: starts ranks as processes that find each other over TCP, here or on hosts by ssh. What mpirun is
// where there is MPI.

#include <string>
#include <vector>

#include "launch_plan.h"

namespace keel::cli {

// In the environment of the process around a rank: it reads signals, a byte each, from its standard input, whose end
// means that the launcher is gone.
constexpr const char* kLedVariable = "KEEL_LAUNCH_LED";

// Runs the command as so many ranks, on the hosts in their order, or on this machine where there are none. Passes
// SIGUSR1 and SIGUSR2 on to all. When a rank fails the others have a second to say what they know of it, and are ended.
// Returns the exit code of the first that failed. With `keeps_going` the others go on instead, and it is 0 where one of
// them ends well. Of several machines, on each of which somebody does so, they are those of this one.
int launch_over_tcp(int ranks, const std::vector<Host>& hosts, const Machines& machines,
                    const std::vector<std::string>& command, bool keeps_going = false);

// In the process around a rank: raises the signals that the launcher sends through the standard input, and leaves the
// rank an empty one. Nothing where no such launcher started it. The caller holds the signals back.
void follow_launcher();

}  // namespace keel::cli
