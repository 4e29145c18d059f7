#pragma once
// Reads a command line by the description of the program, and does what it says.

#include "command.h"

namespace keel::cli {

// `words` are those behind the program's name. Names the command, fills the variables of its options and runs it, or
// prints a text that was asked for; returns the exit code. An Error that says what is wrong and where help is.
//
// Options may stand before and behind positionals, and -- ends them. "--steps 4" and "--steps=4" are the same, and so
// are "-N 4", "-N4" and "-N=4". A value may be empty: --name "", or --name=.
int run_program(const Command& program, const Words& words);

// `keel help COMMAND`: what COMMAND --help prints.
Command help_command(const Command& program);

}  // namespace keel::cli
