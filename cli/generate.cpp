// `keel generate`: text from a trained model, as it is made.

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>
#include <memory>
#include <string_view>

#include "commands.h"
#include "keel/runtime/error.h"
#include "keel/trainer/generate.h"

namespace keel::cli {
namespace {

constexpr const char* kFooter = R"(
Examples:
  keel generate runs/add --prompt "347+586="
  keel generate runs/text --prompt "The " --tokens 200 --temperature 0.8 --top-k 40 --seed 3)";

void run(const GenerateOptions& options) {
  generate(options, [](std::string_view text) { std::cout << text << std::flush; });
  std::cout << '\n' << std::flush;
  if (!std::cout) throw Error("the text cannot be written to the standard output", ErrorKind::io);
}

}  // namespace

void add_generate(CLI::App& program) {
  CLI::App* command = program.add_subcommand("generate", "Continue a text with a trained model.");
  const auto options = std::make_shared<GenerateOptions>();
  command->add_option("RUN", options->run, "Folder of a finished or stopped run.")->required();
  command->add_option("--prompt", options->prompt, "Text to continue.")->required();
  command->add_option("--tokens", options->tokens, "Tokens to add.")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  command->add_option("--temperature", options->temperature, "0: always the likeliest token; 1: as the model says.")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1000.0));
  command->add_option("--top-k", options->top_k, "Choose among the k likeliest tokens; 0: among all.")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000000));
  command->add_option("--seed", options->seed, "Of the choices.")->capture_default_str();
  command->add_option("--device", options->device, "Where to compute: cpu, cuda:0, ...; auto: the first GPU, if any.")
      ->capture_default_str();
  command->footer(kFooter);
  command->callback([options] { run(*options); });
}

}  // namespace keel::cli
