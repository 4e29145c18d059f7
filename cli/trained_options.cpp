#include "trained_options.h"

#include <iostream>

#include "common_options.h"
#include "keel/runtime/printable.h"
#include "launch.h"
#include "launched.h"
#include "program_keys.h"
#include "ranks.h"

namespace keel::cli {

TrainedSource TrainedArguments::source() const {
  KEEL_CHECK(!ema || !swa, "--ema and --swa: a model has one kind of weights; leave one out");
  KEEL_CHECK(!best || step == kNewest, "--best says which step; leave --step out");
  return {.path = path,
          .step = step == kNewest ? std::nullopt : std::optional(step),
          .is_best = best,
          .average = ema   ? "ema"
                     : swa ? "swa"
                           : "",
          .strategy = strategy,
          .changes = changes,
          .keys = program_keys()};
}

Option trained_run(TrainedArguments& arguments) {
  return {"RUN", "", &arguments.path, "Folder of a run, of one checkpoint, or of a model of Hugging Face's form.",
          kRequired};
}

Option step_option(TrainedArguments& arguments) {
  return {"--step",
          "N",
          {&arguments.step, 0, TrainedArguments::kHighestStep},
          "The run's checkpoint of this step; else its newest."};
}

std::vector<Option> average_options(TrainedArguments& arguments) {
  return {{"--best", "", &arguments.best, "The best checkpoint, as checkpoint.best has found it."},
          {"--ema", "", &arguments.ema, "The moving average of the weights (ema.decay)."},
          {"--swa", "", &arguments.swa, "The mean of the weights (swa.start)."}};
}

std::vector<Option> sharing_options(TrainedArguments& arguments) {
  return {{"--strat", "NAME", &arguments.strategy,
           "How ranks share the model, and in which numbers it computes: zero3, zero3-bf16; see `keel strats`."},
          {"-N", "RANKS", {&arguments.ranks, 1, 1024}, "Ranks to start, where no launcher has."},
          ranks_as_threads(&arguments.threads)};
}

int on_ranks_of(const std::string& command, const Call& call, const TrainedArguments& arguments,
                const std::function<int(Communicator&)>& work) {
  const bool launched = find_launched().has_value();
  if (!launched && !arguments.threads && arguments.ranks > 1)
    return launch_keel(arguments.ranks, words_for_ranks(command, call));
  return on_ranks(arguments.threads || !launched ? arguments.ranks : 0, work);
}

Tell tell_on_console() {
  return [](LogLevel level, std::string_view message) {
    const char* kind = level == LogLevel::warning ? "warning: " : "note: ";
    std::cerr << concat("keel: ", kind, printable(message), '\n');
  };
}

}  // namespace keel::cli
