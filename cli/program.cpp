// The program: the list of its commands, and errors as lines and exit codes.

#include <fmt/core.h>

#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "build_info.h"
#include "commands.h"
#include "main.h"
#include "program_keys.h"
#include "report.h"
#include "run_program.h"

namespace keel::cli {
namespace {

// The one list of commands: of --help, and of the page docs/commands.md.
struct Listed {
  Command (*make)();
  const char* example;
  const char* meaning;  // of the example
};

constexpr Listed kCommands[] = {
    {train_command, "keel train examples/addition.yaml", "a small GPT learns to add"},
    {config_command, "keel config --from hps.yaml", "keel's configuration from another trainer's, key by key"},
    {compare_command, "keel compare c.yaml -N 2", "all stages side by side: same weights, bytes, memory, times"},
    {comm_command, "keel comm -N 4", "what all_reduce costs here, by keel and by MPI"},
    {launch_command, "keel launch -N 4 --strat zero2-bf16 c.yaml", "four ranks, which share out what a run keeps"},
    {checkpoints_command, "keel checkpoints runs/mine", "which checkpoints there are, and whether they are whole"},
    {get_command, "keel get runs/mine --out m.safetensors", "the weights in one file, for other programs"},
    {evaluate_command, "keel evaluate runs/mine", "the metrics of a trained model on its validation sets"},
    {predict_command, "keel predict runs/mine --input a.jsonl --out b.jsonl", "what it says of each example of a file"},
    {generate_command, "keel generate runs/add --prompt \"347+586=\"", "what a trained model makes of a text"},
    {tokenize_command, "keel tokenize corpus.txt --out corpus.bin", "a file that data.type=tokens reads"},
    {tokenizer_command, "keel tokenizer show gpt2 \"A text\"", "a text cut into tokens; `train` makes a tokenizer"},
    {data_command, "keel data train.jsonl", "what is in it: fields, lengths, first rows"},
    {plan_command, "keel plan c.yaml -N 64", "memory and traffic of each stage, before anything runs"},
    {plot_command, "keel plot runs/mine runs/other", "loss, learning rate, gradient norm and speed, as curves"},
    {show_command, "keel show runs/mine", "a step of a run that recorded one: memory, time and bytes, as a page"},
    {schedule_command, "keel schedule c.yaml", "the learning rate of every step, as a curve"},
    {tasks_command, "keel tasks language", "what can be learnt, and the keys that say how"},
    {models_command, "keel models", "which architectures there are"},
    {strats_command, "keel strats", "the names of strategies"},
    {env_command, "keel env", "what this machine and this build offer"},
    {race_demo_command, "keel race-demo", "the emulator finds a missing barrier in a CUDA kernel"},
    {softmax_demo_command, "keel softmax-demo 1 3 2 5 --block 2", "a softmax from blocks, as attention computes it"},
    {docs_command, "keel docs config", "all keys of a configuration, as Markdown"},
};

constexpr const char* kExitCodes = R"(
Exit codes:
  0    done
  1    a defect of keel itself; of `keel checkpoints`: a checkpoint is damaged
  2    bad input: an option, a configuration, a file that is missing or malformed, a full disk
  3    a loss or gradient was not finite
  130  stopped by Ctrl-C, after saving what was learnt; 143: by SIGTERM or SIGUSR1
Of several ranks, the one that began to fail says why, and its code is that of all.)";

std::string program_footer() {
  std::string text = "\nExamples:\n";
  const auto add = [&](const char* example, const char* meaning) {
    text += fmt::format("  {:<43} {}\n", example, meaning);
  };
  for (const Listed& each : kCommands) add(each.example, each.meaning);
  add("keel COMMAND --help", "options and examples of a command");
  return text + kExitCodes;
}

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
                  .help = "keel trains models: a training runtime written from scratch.",
                  .options = {{"--version", "", Value::shown([] { return version_line() + '\n'; }),
                               "Say which keel this is, and end."}},
                  .footer = program_footer()};
  for (const Listed& each : kCommands) keel.commands.push_back(each.make());
  keel.commands.push_back(help_command(keel));
  keel.commands.push_back(version_command());
  for (Command& each : keel.commands)
    if (each.name == "docs") each.commands.push_back(commands_page(keel));
  return run_program(keel, words);
}

}  // namespace
}  // namespace keel::cli

namespace keel {

int main(int argc, char** argv, std::span<const TaskEntry> tasks, CallbackFactory callbacks,
         std::span<const StrategyEntry> strategies) {
  try {
    if (!tasks.empty() || !strategies.empty())
      cli::set_program_keys(std::make_shared<const ConfigKeys>(tasks, strategies));
    cli::set_program_callbacks(std::move(callbacks));
    return cli::run({argv + 1, argv + argc});
  } catch (...) {
    const cli::Failure failure = cli::current_failure();
    return cli::report(failure.message, failure.code);
  }
}

}  // namespace keel
