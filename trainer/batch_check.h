#pragma once
// What is looked at in batches before a run begins.

#include <cstdint>

#include "keel/dist/comm/communicator.h"
#include "keel/tasks/task.h"

namespace keel {

// Loads the first row of the training step after `step` steps, of `steps`, and of each validation set. AgreedErrors:
// where ranks find other fields, weights or numbers of rows; where a validation set lacks a field or a weight of the
// training data, or has it in another dtype or rank; where the training data ends before the last step. Collective.
void check_batches(const Data& data, std::int64_t step, std::int64_t steps, Communicator& ranks);

}  // namespace keel
