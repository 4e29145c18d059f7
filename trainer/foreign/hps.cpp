// The `hps:` files of accmt (AcceleratorModule).

#include "keel/config/schema.h"
#include "keel/trainer/foreign/reading.h"

namespace keel::foreign {
namespace {

// A number, or [of training, of evaluation]; of each process.
void read_hps_batch(ForeignReading& reading, const ForeignEntry& entry) {
  ForeignEntry train = entry;
  if (entry.value.kind == YamlNode::Kind::list && entry.value.items.size() == 2) train.value = entry.value.items[0];
  train.value.quoted = false;
  if (const auto rows = reading.whole_number(train)) reading.facts().micro = {*rows, entry};
}

void finish_hps(ForeignReading& reading) {
  if (!reading.has("scheduler.type")) reading.put("scheduler.type", "constant", reading.whole());
}

constexpr ForeignRow kHpsRows[] = {
    epochs("hps.epochs"),
    mapped("hps.max_steps", "steps"),
    mapped(
        "hps.batch_size", "batch.micro|batch.global", read_hps_batch,
        "rows of each process, times ranks; of [training, evaluation] the first, since the second changes no result"),
    mapped("hps.optimizer.type", "optimizer.type"),
    mapped("hps.optimizer.*", "optimizer.*", "the optimizer's options by PyTorch's names"),
    mapped("hps.optim.type", "optimizer.type"),
    mapped("hps.optim.*", "optimizer.*", "likewise"),
    mapped("hps.scheduler.type", "scheduler.type"),
    mapped("hps.scheduler.*", "scheduler.*",
           "num_warmup_steps below 1 with a decimal point is a ratio; without a scheduler the rate is constant"),
    words("hps.step_scheduler_per_epoch", "scheduler.interval", "false=step|true=epoch|False=step|True=epoch"),
};

}  // namespace

const ForeignKind kHps = {
    .name = "hps",
    .title = "hps: files of accmt",
    .signs = "hps",
    .about =
        "Hyperparameters alone: what is trained stood in a Python module, and is given as `task`, `model` and `data`. "
        "Arguments of its Trainer are keel's `clip`, `eval.every`, `checkpoint.every`, `log.every` and `resume`.",
    .rows = kHpsRows,
    .finish = finish_hps,
    .reads_texts = true};

}  // namespace keel::foreign
