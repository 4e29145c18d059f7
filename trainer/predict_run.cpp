#include "keel/trainer/predict_run.h"

#include <algorithm>
#include <optional>

#include "keel/dist/checkpoint/manifest.h"
#include "keel/dist/comm/agreement.h"
#include "keel/runtime/file.h"
#include "keel/trainer/batch_rounds.h"
#include "keel/trainer/output_target.h"

namespace keel {
PredictedRun predict_run(TrainedModel& trained, const PredictOptions& options) {
  Communicator& ranks = trained.ranks();
  const bool is_first = ranks.rank() == 0;
  std::optional<AtomicFile> file;
  std::shared_ptr<const BatchSource> source;
  together(ranks, [&] {
    source = trained.task().prediction_data(options.input);
    if (!is_first) return;
    check_output_target(options.out, options.input, options.replaces);
    file.emplace(options.out);
  });
  trained.load();
  PredictedRun done;
  const auto answer = [&](const Batch& batch, Forward& pass) {
    Predictions predictions(batch.examples());
    trained.task().predict_step(batch, pass, predictions);
    return predictions.lines();
  };
  const auto take = [&](std::span<const std::string> answers) {
    together(ranks, [&] {
      for (const std::string& lines : answers) {
        done.examples += std::ranges::count(lines, '\n');
        if (is_first) file->write(lines);
      }
    });
  };
  answer_in_rounds(*source, source->steps(), trained.context(), trained.dtype(), ranks, answer, take);
  together(ranks, [&] {
    if (is_first) file->commit();
  });
  return done;
}

}  // namespace keel
