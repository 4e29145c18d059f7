// `keel generate`: text from a trained model, as it is made.

#include <iostream>
#include <memory>
#include <string_view>

#include "commands.h"
#include "common_options.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/generate.h"
#include "program_keys.h"
#include "trained_options.h"

namespace keel::cli {
namespace {

constexpr const char* kGenerateFooter = R"(
Examples:
  keel generate runs/add --prompt "347+586="
  keel generate runs/text --prompt "The " --tokens 200 --temperature 0.8 --top-k 40 --seed 3
  keel generate runs/text --prompt "The " --top-p 0.9 --repetition-penalty 1.2 --stop "." --stop "!"
  keel generate runs/text --prompts prompts.txt --out answers.jsonl      of each line, eight at a time
  keel generate models/gpt2 --prompt "The "          a folder of Hugging Face's form, or a name in its local cache
  keel generate models/new "model.ignored_keys=[new_key]" --prompt "The "     where config.json has a key too many
  keel launch -N 4 --strat zero3 generate runs/text --prompt "The "      a model that no rank has memory for alone

A text ends behind --tokens tokens, before a --stop, and before a token that generation_config.json or config.json beside
the model calls eos_token_id. OUT has an object of JSON on a line for each prompt, in their order: example, which counts
from 0, prompt and answer. It appears when all is written.)";

struct GenerateArguments {
  TrainedArguments trained;
  GenerateOptions options;
  GenerateFiles files;
};

void check_prompts(const GenerateArguments& arguments) {
  const bool has_file = !arguments.files.prompts.empty(), has_out = !arguments.files.out.empty();
  KEEL_CHECK(!has_file || arguments.options.prompt.empty(), "--prompt and --prompts: give one of them");
  KEEL_CHECK(has_file == has_out, "--prompts and --out go together: a file of prompts, and one for the answers");
  KEEL_CHECK(has_file || !arguments.options.prompt.empty(),
             "--prompt is empty; give the text that the model shall continue, or --prompts with a file of such");
}

int generate_on(Communicator& ranks, const GenerateArguments& arguments) {
  GenerateOptions options = arguments.options;
  options.run = arguments.trained.path;
  options.strategy = arguments.trained.strategy;
  options.changes = arguments.trained.changes;
  const GenerateFiles& files = arguments.files;
  if (!files.prompts.empty()) {
    const std::int64_t answers = generate_file(options, files, ranks, program_keys());
    if (ranks.rank() == 0) std::cout << printable(files.out) << ": " << answers << " answers\n" << std::flush;
    return 0;
  }
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
      {"--prompt", "", &options.prompt, "Text to continue."},
      {"--prompts", "FILE", &arguments->files.prompts,
       "Texts to continue: the lines of a text, or `prompt` or `text` of each record of a .jsonl, a table or a "
       "columnar file; .gz behind a name is read, too."},
      {"--out", "FILE", &arguments->files.out, "With --prompts: the file to write, .jsonl."},
      {"--force", "", &arguments->files.replaces, "Replace OUT where it is there already."},
      {"--batch", "", {&arguments->files.batch, 1, 1'000'000}, "With --prompts: how many are continued at once."},
      {"--tokens", "", {&options.tokens, 1, 1'000'000}, "Tokens to add."},
      {"--temperature", "", {&options.temperature, 0, 1000}, "0: always the likeliest token; 1: as the model says."},
      {"--top-k", "", {&options.top_k, 0, 1'000'000}, "Choose among the k likeliest tokens; 0: among all."},
      {"--top-p", "", {&options.top_p, 0, 1}, "Choose among the likeliest tokens that have this share together."},
      {"--min-p", "", {&options.min_p, 0, 1}, "Leave out tokens less likely than this times the likeliest."},
      {"--repetition-penalty",
       "",
       {&options.repetition_penalty, 0, 1000},
       "Above 1: tokens that the text has already are less likely."},
      {"--stop", "TEXT", Value::every_word(&options.stop), "End before this text; may be given again."},
      {"--seed", "", &options.seed, "Of the choices."},
      {"--device", "", &options.device, "Where to compute: cpu, cuda:0, ...; auto: the first GPU, if any."}};
  for (Option& each : sharing_options(arguments->trained)) all.push_back(std::move(each));
  return {.name = "generate",
          .help = "Continue a text with a trained model.",
          .positionals = {{"RUN", "", &arguments->trained.path,
                           "Folder of a finished or stopped run, or of a model of Hugging Face's form.", kRequired},
                          overrides(&arguments->trained.changes)},
          .options = std::move(all),
          .footer = kGenerateFooter,
          .run = [arguments](const Call& call) {
            check_prompts(*arguments);
            return on_ranks_of("generate", call, arguments->trained,
                               [&](Communicator& ranks) { return generate_on(ranks, *arguments); });
          }};
}

}  // namespace keel::cli
