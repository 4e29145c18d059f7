#pragma once
// The subcommands of the program `keel`: each adds itself to the command line and does its work when it is named.

namespace CLI {
class App;
}

namespace keel::cli {

// Sets exit_code to 1 where an element was wrong.
void add_comm(CLI::App& program, int& exit_code);
// Sets exit_code to 1 where strategies differ.
void add_compare(CLI::App& program, int& exit_code);
void add_docs(CLI::App& program);
void add_env(CLI::App& program);
void add_generate(CLI::App& program);
void add_launch(CLI::App& program, int& exit_code);
void add_plan(CLI::App& program);
void add_race_demo(CLI::App& program);
void add_schedule(CLI::App& program);
void add_strats(CLI::App& program);
// Sets exit_code when the run was stopped by a signal.
void add_train(CLI::App& program, int& exit_code);

}  // namespace keel::cli
