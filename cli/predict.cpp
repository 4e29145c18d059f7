// `keel predict`: what a trained model says of each example of a file.

#include <iostream>
#include <memory>
#include <string>

#include "commands.h"
#include "common_options.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/predict_run.h"
#include "trained_options.h"

namespace keel::cli {
namespace {

constexpr const char* kPredictFooter = R"(
Examples:
  keel predict runs/text --input lines.txt --out lines.jsonl       how likely each line is: loss and perplexity
  keel predict runs/text --input texts.jsonl --out scored.jsonl    the same of the field `text` of each line
  keel predict runs/add --input sums.txt --out answers.jsonl       the sum of each "347+586="
  keel launch -N 4 --strat zero3 predict runs/text --input a.txt --out a.jsonl

OUT has an object of JSON on a line for each example, in the order of INPUT, which counts from 0 as `example`. It
appears when all is written. What INPUT is, and what is said of it, is the task's; examples need no labels.)";

struct PredictArguments {
  TrainedArguments trained;
  PredictOptions files;
};

int predict_on(Communicator& ranks, const PredictArguments& arguments) {
  TrainedModel trained(arguments.trained.source(), ranks, tell_on_console());
  const PredictedRun done = predict_run(trained, arguments.files);
  if (ranks.rank() == 0)
    std::cout << printable(arguments.files.out) << ": " << done.examples << " examples, by step " << trained.step()
              << " of " << printable(arguments.trained.path) << '\n';
  return 0;
}

}  // namespace

Command predict_command() {
  const auto arguments = std::make_shared<PredictArguments>();
  std::vector<Option> options = {
      {"--input", "FILE", &arguments->files.input, "The examples.", kRequired},
      {"--out", "FILE", &arguments->files.out, "The file to write.", kRequired},
      {"--force", "", &arguments->files.replaces, "Replace the file where it is there already."},
      step_option(arguments->trained),
  };
  for (Option& each : average_options(arguments->trained)) options.push_back(std::move(each));
  for (Option& each : sharing_options(arguments->trained)) options.push_back(std::move(each));
  return {.name = "predict",
          .help = "Write what a trained model says of each example of a file.",
          .positionals = {trained_run(arguments->trained), overrides(&arguments->trained.changes)},
          .options = std::move(options),
          .footer = kPredictFooter,
          .run = [arguments](const Call& call) {
            return on_ranks_of("predict", call, arguments->trained,
                               [&](Communicator& ranks) { return predict_on(ranks, *arguments); });
          }};
}

}  // namespace keel::cli
