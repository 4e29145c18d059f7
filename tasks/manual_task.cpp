#include "keel/tasks/manual_task.h"

#include "keel/runtime/error.h"

namespace keel {

void ManualTask::validation_step(const Batch& /*batch*/, Forward& /*pass*/, Metrics& /*metrics*/) {
  throw Error("the task has validation sets, and no validation_step() that says what is to be measured on them",
              ErrorKind::unsupported);
}

}  // namespace keel
