#pragma once
// The task `fine_tuning`: decoders learn to answer, from records with roles, by losses on the answers alone.

#include "keel/tasks/catalog.h"

namespace keel {

TaskEntry fine_tuning_task();

}  // namespace keel
