#pragma once
// The commands of the program `keel`.

#include "command.h"

namespace keel::cli {

Command train_command();
Command compare_command();
Command comm_command();
Command launch_command();
Command generate_command();
Command tokenize_command();
Command plan_command();
Command plot_command();
Command schedule_command();
Command strats_command();
Command env_command();
Command race_demo_command();
Command docs_command();

}  // namespace keel::cli
