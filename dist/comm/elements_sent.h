#pragma once
// What one rank sends for a collective: read off its algorithm's schedule, or what NCCL passes on in a ring.

#include <cstdint>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/collective_route.h"
#include "keel/dist/comm/communicator.h"

namespace keel {

// Elements that the rank sends for a collective of shape.count of them: a reduction, a gather of all or an all_to_all.
// Throws the Error of find_algorithm().
std::int64_t elements_sent(const CollectiveRoute& route, CollectiveKind kind, const CollectiveShape& shape);

// Elements that a rank sends to the next one where NCCL passes them around in a ring, as it does by default; of an
// all_to_all none, which is messages.
std::int64_t elements_passed_on(const CollectiveShape& shape, CollectiveKind kind, int root = 0);

}  // namespace keel
