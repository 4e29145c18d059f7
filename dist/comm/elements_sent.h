#pragma once
// What one rank sends for a collective, read off its algorithm's schedule.

#include <cstdint>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/communicator.h"

namespace keel {

// Elements that the rank sends for a collective of shape.count of them: a reduction, a gather of all or an all_to_all.
std::int64_t elements_sent(const Algorithm& algorithm, CollectiveKind kind, const CollectiveShape& shape);

}  // namespace keel
