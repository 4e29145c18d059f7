#include "keel/trainer/make_steps.h"

#include "keel/trainer/assembly.h"
#include "keel/trainer/manual_steps.h"
#include "keel/trainer/training_step.h"

namespace keel {

std::unique_ptr<RunSteps> make_steps(const StepsSite& site, const StepCurves& curves, std::int64_t step) {
  const Config& config = site.config;
  RunStacks& stacks = site.stacks;
  const int workers = static_cast<int>(config.data.workers);
  if (auto* const manual = dynamic_cast<ManualTask*>(&site.task))
    return std::make_unique<ManualSteps>(ManualSteps::Parts{.task = *manual,
                                                            .stacks = stacks.trained(),
                                                            .ranks = site.ranks,
                                                            .source = site.source,
                                                            .micro = config.batch.micro,
                                                            .micro_batches = site.micro_batches,
                                                            .last_step = config.steps,
                                                            .seed = config.seed,
                                                            .workers = workers,
                                                            .unit = std::string(site.task.unit()),
                                                            .rate_factor = site.rate_factor,
                                                            .after_pass = [&stacks] { stacks.release_frozen(); },
                                                            .watcher = site.watcher,
                                                            .trace = &stacks.trace()},
                                         step);
  return std::make_unique<TrainingSteps>(TrainingSteps::Parts{.model = stacks.main().model(),
                                                              .loss = stacks.loss(),
                                                              .engine = stacks.engine(),
                                                              .ranks = site.ranks,
                                                              .loader = site.source,
                                                              .micro = config.batch.micro,
                                                              .curves = scaled(curves, site.rate_factor),
                                                              .last_step = config.steps,
                                                              .seed = config.seed,
                                                              .cuda_graph = config.cuda_graph,
                                                              .workers = workers,
                                                              .unit = std::string(site.task.unit()),
                                                              .safe = config.safe_steps,
                                                              .watcher = site.watcher,
                                                              .trace = &stacks.trace()},
                                         step);
}

}  // namespace keel
