#pragma once
// Names that keel's own numbers have in the records of a run.

#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

// "loss", "lr", "step", "validation_loss", "peak_total_bytes": what a task logs must be called otherwise.
bool is_record_name(std::string_view name);

}  // namespace keel
