#pragma once
// The same training under several strategies: whether the weights come out alike, and what each one costs.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/dist/comm/communicator.h"
#include "keel/trainer/config.h"
#include "keel/trainer/progress.h"

namespace keel {

struct ComparedStrategy {
  std::string name;
  std::uint64_t fingerprint = 0;  // of all weights in the end; equal numbers have equal ones
  double loss = 0;                // of the last step
  // Of the first rank. Bytes sent in a step after the first, and bytes of parameters, gradients and optimizer state.
  std::int64_t sent = 0, sent_by_formula = 0;
  std::int64_t kept = 0, kept_by_formula = 0;
  double exposed_ms = 0;  // of a step, in which the first rank waited for the others; the median
  double step_ms = 0;     // the median

  bool fits_formulas() const { return sent == sent_by_formula && kept == kept_by_formula; }
};

// Trains `steps` steps (at least 2) as `config` says, but under each of the strategies, and without evaluation and
// files. Every rank calls it.
std::vector<ComparedStrategy> compare_strategies(const Config& config, std::span<const std::string> strategies,
                                                 std::int64_t steps, TrainObserver& observer, Communicator& ranks);

}  // namespace keel
