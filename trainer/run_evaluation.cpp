#include "keel/trainer/run_evaluation.h"

#include <algorithm>
#include <iterator>

#include "keel/runtime/stopwatch.h"
#include "keel/trainer/evaluation.h"

namespace keel {

EvalReport RunEvaluation::run(std::int64_t step, std::int64_t batches) const {
  const double start = seconds_now();
  EvalReport report{.step = step};
  for (const ValidationSet& set : data.validation)
    std::ranges::move(
        evaluate_set(task, set, batches_of(set, batches), engine.context(), engine.options().policy.parameter, ranks),
        std::back_inserter(report.values));
  report.seconds = seconds_now() - start;
  return report;
}

}  // namespace keel
