#include "keel/trainer/run_evaluation.h"

#include <algorithm>
#include <iterator>

#include "keel/dist/comm/agreement.h"
#include "keel/runtime/stopwatch.h"
#include "keel/trainer/evaluation.h"

namespace keel {

EvalReport RunEvaluation::run(std::int64_t step, const BatchLimits& batches) const {
  const double start = seconds_now();
  EvalReport report{.step = step};
  for (const ValidationSet& set : data.validation)
    std::ranges::move(
        evaluate_set(task, set, batches_of(set, batches), engine.context(), engine.options().policy.parameter, ranks),
        std::back_inserter(report.values));
  report.seconds = seconds_now() - start;
  return report;
}

void RunEvaluation::try_some() const {
  const std::int64_t batches = config.eval.sanity;
  if (batches == 0) return;
  try {
    run(0, batches);
  } catch (const AgreedError& error) { throw AgreedError("eval.sanity: ", error); } catch (const Error& error) {
    throw Error("eval.sanity: ", error);
  }
}

}  // namespace keel
