#include "keel/trainer/make_task.h"

#include <cmath>

#include "keel/data/limited_epochs.h"
#include "keel/runtime/file.h"
#include "keel/tasks/manual_task.h"
#include "keel/trainer/config.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/curriculum.h"
#include "keel/trainer/run_folder.h"

namespace keel {
namespace {

// Rows of a validation batch: memory like that of a micro-batch with gradients, and few small products.
std::int64_t validation_rows(const Config& config) { return 2 * config.batch.micro; }

// The run that this one goes on from, as far as it can be told before its checkpoints are looked at (resume.cpp).
KeptRun run_gone_on_from(const Config& config) {
  if (config.resume == "never" || config.run.empty()) return {};
  const std::string path = config.resume == "auto" ? config.run : config.resume;
  const std::string meant = RunFolder::meant_by(path), folder = meant.empty() ? RunFolder::around(path) : meant;
  if (folder.empty() || !RunFolder(folder).holds_run()) return {};
  const std::string file = RunFolder(folder).config();
  try {
    const Config before = parse_config(config.keys, read_text_file(file), file);
    return before.task == config.task ? KeptRun{folder, before} : KeptRun{};
  } catch (const Error&) { return {}; }  // such as keys of another program: resuming says what is wrong
}

}  // namespace

std::unique_ptr<TaskBase> make_task(const Config& config, const Context& host, const std::string& run,
                                    const std::function<void(std::uint64_t done, std::uint64_t all)>& progress) {
  std::unique_ptr<TaskBase> task = config.keys->tasks()
                                       .find(config.task)
                                       ->make({.settings = config,
                                               .seed = config.seed,
                                               .data_seed = config.data.seed,
                                               .rows = config.batch.global,
                                               .validation_rows = validation_rows(config),
                                               .host = host,
                                               .run = run,
                                               .kept = run.empty() ? run_gone_on_from(config) : KeptRun{},
                                               .steps = config.epochs > 0 ? 0 : config.steps,
                                               .progress = progress});
  KEEL_CHECK(config.sharding.virtual_ranks == 0 || dynamic_cast<ManualTask*>(task.get()) == nullptr,
             "sharding.virtual_ranks does not go together with the task ", config.task,
             ", which trains several models in turns of its own; set it to 0");
  return task;
}

Data open_training_data(Config& config, TaskBase& task) {
  const std::string obstacle = config.cuda_graph ? task.why_not_recordable() : "";
  KEEL_CHECK(obstacle.empty(), "cuda_graph: ", obstacle);
  Data data = task.data();
  KEEL_CHECK(data.training, "the task ", config.task, " has no data to train on");
  if (const BatchLimit& limit = config.data.batches; !limit.is_none()) try {
      data.training = limited_epochs(data.training, limit.of(std::llround(data.training->steps_per_epoch())));
    } catch (const Error& error) { throw Error("data.batches: ", error); }
  config.eval.batches.check_sets(data.validation, "eval.batches");
  measure_lengths(config, data.training->steps_per_epoch(), data.training->steps());
  data.training = with_curriculum(config.curriculum, data.training, task.has_equal_rows() ? task.positions() : 0);
  return data;
}

LossFunction loss_of(TaskBase& task) {
  auto* const one = dynamic_cast<Task*>(&task);
  if (one == nullptr)
    throw Error("the task steers its own steps, which this command cannot do", ErrorKind::unsupported);
  return [one](const Batch& batch, Forward& pass) { return one->training_step(batch, pass); };
}

void measure_by_data(Config& config) {
  if (config.epochs == 0) return;
  const Context host = Context::create({.threads = 1});
  open_training_data(config, *make_task(config, host));
}

std::unique_ptr<TaskBase> make_task(const Config& config) { return make_task(config, Context::create({.threads = 1})); }

}  // namespace keel
