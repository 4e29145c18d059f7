#pragma once
// The commands of the program `keel`.

#include "command.h"

namespace keel::cli {

Command train_command();
Command config_command();
Command compare_command();
Command comm_command();
Command launch_command();
Command evaluate_command();
Command predict_command();
Command checkpoints_command();
Command get_command();
Command generate_command();
Command tokenize_command();
Command tokenizer_command();
Command data_command();
Command plan_command();
Command plot_command();
Command show_command();
Command schedule_command();
Command tasks_command();
Command models_command();
Command strats_command();
Command env_command();
Command race_demo_command();
Command softmax_demo_command();
Command docs_command();
// `keel docs commands`, a command of `keel docs`.
Command commands_page(const Command& program);

}  // namespace keel::cli
