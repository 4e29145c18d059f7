#pragma once
// The configuration of one of the models that a task trains by name.

#include <string>

#include "keel/trainer/config.h"

namespace keel {

// That of the run, with what the key stacks.NAME says. Only keys of optimizer, scheduler, clip and loss_scale may be
// other; a key that is none of these, or a value that is wrong, is an Error that begins with stacks.NAME. A frozen
// model, and one without a name, has that of the run.
Config stack_config(const Config& config, const std::string& name, bool frozen = false);

}  // namespace keel
