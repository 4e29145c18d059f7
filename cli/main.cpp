// The program `keel`: the list of its commands, and errors as lines and exit codes.

#include <iostream>
#include <string>

#include "build_info.h"
#include "commands.h"
#include "report.h"
#include "run_program.h"

namespace keel::cli {
namespace {

constexpr const char* kProgramFooter = R"(
Examples:
  keel train examples/addition.yaml          a small GPT learns to add
  keel launch -N 4 --strat zero2-bf16 c.yaml   four ranks, which share out what a run keeps in memory
  keel compare c.yaml -N 2                   all stages side by side: same weights, bytes, memory, times
  keel comm -N 4                             what all_reduce costs here, by keel and by MPI
  keel strats                                the names of such strategies
  keel generate runs/add --prompt "347+586="
  keel plot runs/mine runs/other             loss, learning rate, gradient norm and speed, as curves
  keel tokenize corpus.txt --out corpus.bin  a file that data.type=tokens reads
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

Command version_command() {
  return {.name = "version",
          .help = "Say which keel this is.",
          .footer = "\nExample:\n  keel version",
          .run = [](const Call&) {
            std::cout << version_line() << '\n';
            return 0;
          }};
}

int run(const Words& words) {
  Command keel = {.name = "keel",
                  .help = "keel trains language models: a training runtime written from scratch.",
                  .options = {{"--version", "", Value::shown([] { return version_line() + '\n'; }),
                               "Say which keel this is, and end."}},
                  .footer = kProgramFooter,
                  .commands = {train_command(), compare_command(), comm_command(), launch_command(), generate_command(),
                               tokenize_command(), plan_command(), plot_command(), schedule_command(), strats_command(),
                               env_command(), race_demo_command(), docs_command()}};
  keel.commands.push_back(help_command(keel));
  keel.commands.push_back(version_command());
  return run_program(keel, words);
}

}  // namespace
}  // namespace keel::cli

int main(int argc, char** argv) {
  try {
    return keel::cli::run({argv + 1, argv + argc});
  } catch (...) {
    const keel::cli::Failure failure = keel::cli::current_failure();
    return keel::cli::report(failure.message, failure.code);
  }
}
