#pragma once
// Collectives of ranks that have memory in common, without messages.

#include "keel/dist/comm/operation.h"

namespace keel {

// Takes every collective but messages between two ranks. The group must have memory in common.
std::shared_ptr<GroupOperation> make_node_operation(std::shared_ptr<Group> group, const Collective& collective);

}  // namespace keel
