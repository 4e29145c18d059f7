#include "keel/trainer/trackers/all.h"

namespace keel {

std::span<const TrackerEntry> trackers() {
  static const TrackerEntry entries[] = {jsonl_tracker(), csv_tracker(), tensorboard_tracker(), mlflow_tracker(),
                                         command_tracker()};
  return entries;
}

}  // namespace keel
