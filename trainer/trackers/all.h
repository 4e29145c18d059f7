#pragma once
// keel's kinds of trackers: the entries of trackers().

#include "keel/trainer/tracker.h"

namespace keel {

TrackerEntry jsonl_tracker();
TrackerEntry csv_tracker();
TrackerEntry tensorboard_tracker();
TrackerEntry mlflow_tracker();
TrackerEntry command_tracker();

}  // namespace keel
