#pragma once
// The configuration keys of this program, those of its tasks among them, and its callbacks.

#include <memory>

#include "keel/trainer/callback.h"
#include "keel/trainer/config.h"
#include "keel/trainer/config_keys.h"

namespace keel::cli {

// keel's own until keel::main() has said otherwise.
const std::shared_ptr<const ConfigKeys>& program_keys();
void set_program_keys(std::shared_ptr<const ConfigKeys> keys);
// Those of one rank: new objects at every call. None until keel::main() has said otherwise.
Callbacks program_callbacks(const Config& config);
void set_program_callbacks(CallbackFactory factory);

}  // namespace keel::cli
