#pragma once
// What --help prints of a command, and the page about all of them.

#include <string>

#include "command.h"

namespace keel::cli {

// Every command takes it.
Option help_option(const Command& command, const std::string& path);

// `path` is how the command is called: "keel docs config".
std::string help_of(const Command& command, const std::string& path);

// The page docs/commands.md.
std::string commands_reference(const Command& program);

}  // namespace keel::cli
