#pragma once
// The configuration keys of this program, those of its tasks among them.

#include <memory>

#include "keel/trainer/config_keys.h"

namespace keel::cli {

// keel's own until keel::main() has said otherwise.
const std::shared_ptr<const ConfigKeys>& program_keys();
void set_program_keys(std::shared_ptr<const ConfigKeys> keys);

}  // namespace keel::cli
