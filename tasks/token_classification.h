#pragma once
// The task `token_classification`: a class of each word of a text.

#include "keel/tasks/catalog.h"

namespace keel {

TaskEntry token_classification_task();

}  // namespace keel
