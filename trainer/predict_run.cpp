#include "keel/trainer/predict_run.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "keel/dist/checkpoint/manifest.h"
#include "keel/dist/comm/agreement.h"
#include "keel/runtime/file.h"
#include "keel/trainer/batch_rounds.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

void check_target(const PredictOptions& options) {
  std::error_code ignored;
  KEEL_CHECK(!fs::is_directory(options.out, ignored), "'", options.out, "' is a folder; name a file");
  KEEL_CHECK(options.replaces || !fs::exists(fs::symlink_status(options.out, ignored)), "'", options.out,
             "' is there already; --force replaces it");
  const bool is_input = fs::equivalent(options.input, options.out, ignored);
  KEEL_CHECK(!is_input, "'", options.out, "' is the input; name another file");
}

}  // namespace

PredictedRun predict_run(TrainedModel& trained, const PredictOptions& options) {
  Communicator& ranks = trained.ranks();
  const bool is_first = ranks.rank() == 0;
  std::optional<AtomicFile> file;
  std::shared_ptr<const BatchSource> source;
  together(ranks, [&] {
    source = trained.task().prediction_data(options.input);
    if (!is_first) return;
    check_target(options);
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
