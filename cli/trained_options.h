#pragma once
// What commands share that let the model of a run answer: which one, on which ranks.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "command.h"
#include "keel/trainer/trained_model.h"

namespace keel::cli {

struct TrainedArguments {
  static constexpr std::int64_t kNewest = -1, kHighestStep = std::int64_t{1} << 40;
  std::string path, strategy;
  std::int64_t step = kNewest;
  int ranks = 1;
  bool threads = false;
  bool best = false, ema = false, swa = false;
  Words changes;

  // An Error for options that contradict each other.
  TrainedSource source() const;
};

// RUN, --step, --best, --ema and --swa, and --strat, -N and --threads.
Option trained_run(TrainedArguments& arguments);
Option step_option(TrainedArguments& arguments);
std::vector<Option> average_options(TrainedArguments& arguments);
std::vector<Option> sharing_options(TrainedArguments& arguments);

// Calls `work` on each rank: those that a launcher has started this process as, threads of it, or processes that are
// started for it with the words of the call. Returns the exit code.
int on_ranks_of(const std::string& command, const Call& call, const TrainedArguments& arguments,
                const std::function<int(Communicator&)>& work);

// Notes and warnings of a loader, on the standard error.
Tell tell_on_console();

}  // namespace keel::cli
