#pragma once
// The task `supervised`: numbers in, named numbers and classes out; tables, JSON lines and columnar files.

#include "keel/tasks/catalog.h"

namespace keel {

TaskEntry supervised_task();

}  // namespace keel
