#pragma once
// The task `sequence_classification`: a class, or numbers, of a text or of a pair of texts.

#include "keel/tasks/catalog.h"

namespace keel {

TaskEntry sequence_classification_task();

}  // namespace keel
