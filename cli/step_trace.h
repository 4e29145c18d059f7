#pragma once
// The trace of a planned step as a file, for simulators.

#include <string>
#include <vector>

#include "keel/dist/plan/step_trace.h"
#include "keel/runtime/json.h"

namespace keel::cli {

// The trace of one rank: its nodes with the fields and names of MLCommons Chakra's schema (et_def.proto), as protobuf's
// JSON spells them. docs/comm.md says what the attributes mean.
Json to_chakra(const std::vector<TraceNode>& trace, int ranks, int rank);

}  // namespace keel::cli
