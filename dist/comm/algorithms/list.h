#pragma once
// Every algorithm, each defined in the file of its name.

#include "keel/dist/comm/algorithms.h"

namespace keel::collectives {

extern const Algorithm kDirect, kRing, kHalving, kTree, kHierarchical, kFlat;

}  // namespace keel::collectives
