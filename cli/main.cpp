// The program `keel`: reads the command line, runs one subcommand, and turns errors into lines and exit codes.

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "build_info.h"
#include "commands.h"
#include "keel/runtime/error.h"
#include "report.h"

namespace {

constexpr const char* kFooter = R"(
Examples:
  keel train examples/addition.yaml          a small GPT learns to add
  keel launch -N 4 --strat zero2-bf16 c.yaml   four ranks, which share out what a run keeps in memory
  keel compare c.yaml -N 2                   all stages side by side: same weights, bytes, memory, times
  keel comm -N 4                             what all_reduce costs here, by keel and by MPI
  keel strats                                the names of such strategies
  keel generate runs/add --prompt "347+586="
  keel plan c.yaml -N 64                     memory and traffic of each stage of sharding, before anything runs
  keel schedule c.yaml                       the learning rate of every step, as a curve
  keel env                                   what this machine and this build offer
  keel race-demo                             the emulator finds a missing barrier in a CUDA kernel
  keel docs config                           all keys of a configuration, as Markdown
  keel COMMAND --help                        options and examples of a command

Exit codes:
  0    done
  1    a defect of keel itself
  2    bad input: an option, a configuration, a file that is missing or malformed, a full disk
  3    a loss or gradient was not finite
  130  stopped by Ctrl-C, after saving; 143: by SIGTERM or SIGUSR1
Of several ranks, the one that began to fail says why, and its code is that of all.)";

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

// What was wrong with the command line itself.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const std::string help = keel::concat("`keel ", chosen.empty() ? "" : chosen[0]->get_name() + " ", "--help`");
  if (chosen.empty() && argc > 1 && argv[1][0] != '-') {
    const std::string likely = keel::nearest(argv[1], command_names(app));
    return keel::concat("unknown command '", argv[1], "'",
                        likely.empty() ? "; " + help + " lists them" : ", did you mean '" + likely + "'?");
  }
  return keel::concat(error.what(), "; see ", help);
}

int run(int argc, char** argv) {
  CLI::App app("keel trains language models: a training runtime written from scratch.", "keel");
  app.set_version_flag("--version", keel::cli::version_line());
  app.require_subcommand(1);
  app.footer(kFooter);
  int exit_code = 0;
  keel::cli::add_train(app, exit_code);
  keel::cli::add_compare(app, exit_code);
  keel::cli::add_comm(app, exit_code);
  keel::cli::add_launch(app, exit_code);
  keel::cli::add_generate(app);
  keel::cli::add_plan(app);
  keel::cli::add_schedule(app);
  keel::cli::add_strats(app);
  keel::cli::add_env(app);
  keel::cli::add_race_demo(app);
  keel::cli::add_docs(app);
  try {
    app.parse(argc, argv);
    return exit_code;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return keel::cli::report(usage_message(app, error, argc, argv), keel::cli::kBadInput);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (...) {
    const keel::cli::Failure failure = keel::cli::current_failure();
    return keel::cli::report(failure.message, failure.code);
  }
}
