// `keel generate`: text from a trained model, as it is made.

#include <iostream>
#include <memory>
#include <string_view>

#include "commands.h"
#include "keel/runtime/error.h"
#include "keel/trainer/generate.h"
#include "program_keys.h"
#include "trained_options.h"

namespace keel::cli {
namespace {

constexpr const char* kGenerateFooter = R"(
Examples:
  keel generate runs/add --prompt "347+586="
  keel generate runs/text --prompt "The " --tokens 200 --temperature 0.8 --top-k 40 --seed 3
  keel generate models/gpt2 --prompt "The "          a folder of Hugging Face's form, or a name in its local cache
  keel launch -N 4 --strat zero3 generate runs/text --prompt "The "      a model that no rank has memory for alone)";

struct GenerateArguments {
  TrainedArguments trained;
  GenerateOptions options;
};

int generate_on(Communicator& ranks, const GenerateArguments& arguments) {
  GenerateOptions options = arguments.options;
  options.run = arguments.trained.path;
  options.strategy = arguments.trained.strategy;
  generate(
      options, [](std::string_view text) { std::cout << text << std::flush; }, ranks, program_keys());
  if (ranks.rank() != 0) return 0;
  std::cout << '\n' << std::flush;
  if (!std::cout) throw Error("the text cannot be written to the standard output", ErrorKind::io);
  return 0;
}

}  // namespace

Command generate_command() {
  const auto arguments = std::make_shared<GenerateArguments>();
  GenerateOptions& options = arguments->options;
  std::vector<Option> all = {
      {"--prompt", "", &options.prompt, "Text to continue.", kRequired},
      {"--tokens", "", {&options.tokens, 1, 1'000'000}, "Tokens to add."},
      {"--temperature", "", {&options.temperature, 0, 1000}, "0: always the likeliest token; 1: as the model says."},
      {"--top-k", "", {&options.top_k, 0, 1'000'000}, "Choose among the k likeliest tokens; 0: among all."},
      {"--seed", "", &options.seed, "Of the choices."},
      {"--device", "", &options.device, "Where to compute: cpu, cuda:0, ...; auto: the first GPU, if any."}};
  for (Option& each : sharing_options(arguments->trained)) all.push_back(std::move(each));
  return {.name = "generate",
          .help = "Continue a text with a trained model.",
          .positionals = {{"RUN", "", &arguments->trained.path,
                           "Folder of a finished or stopped run, or of a model of Hugging Face's form.", kRequired}},
          .options = std::move(all),
          .footer = kGenerateFooter,
          .run = [arguments](const Call& call) {
            return on_ranks_of("generate", call, arguments->trained,
                               [&](Communicator& ranks) { return generate_on(ranks, *arguments); });
          }};
}

}  // namespace keel::cli
