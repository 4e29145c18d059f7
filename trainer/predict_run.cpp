#include "keel/trainer/predict_run.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "keel/autograd/variable.h"
#include "keel/dist/checkpoint/manifest.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/file.h"
#include "keel/trainer/pass_group.h"

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

// The predictions of one batch, as lines.
std::string predict(TrainedModel& trained, const Batch& batch, PassGroup& group) {
  const NoGrad no_grad;
  Forward pass{
      .training = false, .random = {}, .sample_ids = batch.sample_ids(), .dtype = trained.dtype(), .group = &group};
  Predictions predictions(batch.examples());
  trained.task().predict_step(batch, pass, predictions);
  return predictions.lines();
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
  PassGroup group(ranks);
  PredictedRun done;
  for (std::int64_t first = 0; first < source->steps(); first += ranks.size()) {
    // As many forward passes on every rank: one without a batch repeats the last.
    const std::int64_t mine = std::min(first + ranks.rank(), source->steps() - 1);
    Batch loaded;
    together(ranks, [&] { loaded = source->load_all(mine); });
    const std::string lines = predict(trained, transfer(loaded, trained.context()), group);
    const std::vector<std::string> round = gather_texts(ranks, lines);
    const auto own = static_cast<std::size_t>(std::min<std::int64_t>(ranks.size(), source->steps() - first));
    together(ranks, [&] {
      for (std::size_t i = 0; i < own; ++i) {
        done.examples += std::ranges::count(round[i], '\n');
        if (is_first) file->write(round[i]);
      }
    });
  }
  together(ranks, [&] {
    if (is_first) file->commit();
  });
  return done;
}

}  // namespace keel
