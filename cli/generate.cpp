// `keel generate`: text from a trained model, as it is made.

#include <iostream>
#include <memory>
#include <string_view>

#include "commands.h"
#include "keel/runtime/error.h"
#include "keel/trainer/generate.h"
#include "program_keys.h"

namespace keel::cli {
namespace {

constexpr const char* kGenerateFooter = R"(
Examples:
  keel generate runs/add --prompt "347+586="
  keel generate runs/text --prompt "The " --tokens 200 --temperature 0.8 --top-k 40 --seed 3)";

int run(const GenerateOptions& options) {
  generate(
      options, [](std::string_view text) { std::cout << text << std::flush; }, program_keys());
  std::cout << '\n' << std::flush;
  if (!std::cout) throw Error("the text cannot be written to the standard output", ErrorKind::io);
  return 0;
}

}  // namespace

Command generate_command() {
  const auto options = std::make_shared<GenerateOptions>();
  return {.name = "generate",
          .help = "Continue a text with a trained model.",
          .positionals = {{"RUN", "", &options->run, "Folder of a finished or stopped run.", kRequired}},
          .options =
              {{"--prompt", "", &options->prompt, "Text to continue.", kRequired},
               {"--tokens", "", {&options->tokens, 1, 1'000'000}, "Tokens to add."},
               {"--temperature",
                "",
                {&options->temperature, 0, 1000},
                "0: always the likeliest token; 1: as the model says."},
               {"--top-k", "", {&options->top_k, 0, 1'000'000}, "Choose among the k likeliest tokens; 0: among all."},
               {"--seed", "", &options->seed, "Of the choices."},
               {"--device", "", &options->device, "Where to compute: cpu, cuda:0, ...; auto: the first GPU, if any."}},
          .footer = kGenerateFooter,
          .run = [options](const Call&) { return run(*options); }};
}

}  // namespace keel::cli
