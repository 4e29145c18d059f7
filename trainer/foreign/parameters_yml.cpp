// parameters.yml of pytorch_universal_trainer.

#include <algorithm>

#include "keel/config/schema.h"
#include "keel/runtime/error.h"
#include "keel/trainer/foreign/reading.h"
#include "keel/trainer/length.h"

namespace keel::foreign {
namespace {

// Numbers that several keys of the file decide together, in the order of the file.
void read_micro(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto rows = reading.whole_number(entry)) reading.facts().micro = {*rows, entry};
}
void read_accumulation(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto times = reading.count(entry)) reading.facts().accumulation = {*times, entry};
}
void read_distributed(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto is_distributed = reading.flag(entry)) reading.facts().rows_of_each_rank = *is_distributed;
}

void read_fp16(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto is_on = reading.flag(entry))
    reading.facts().precision = {*is_on ? Strategy::Precision::fp16 : Strategy::Precision::fp32, entry};
}

void raise_stage(ForeignReading& reading, const ForeignEntry& entry, Strategy::Stage stage) {
  const auto is_on = reading.flag(entry);
  auto& stated = reading.facts().stage;
  if (is_on && *is_on && (!stated || stated->value < stage)) stated = {stage, entry};
}
void read_optimizer_sharding(ForeignReading& reading, const ForeignEntry& entry) {
  raise_stage(reading, entry, Strategy::Stage::zero2);
}
void read_model_sharding(ForeignReading& reading, const ForeignEntry& entry) {
  raise_stage(reading, entry, Strategy::Stage::zero3);
}

void read_warmup(ForeignReading& reading, const ForeignEntry& entry) {
  reading.put("scheduler.warmup", as_ratio(entry.value), entry);
}

void read_continue(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto goes_on = reading.flag(entry); goes_on && *goes_on) reading.facts().goes_on = entry;
}
void read_continue_path(ForeignReading& reading, const ForeignEntry& entry) {
  if (!entry.value.text.empty()) reading.facts().goes_on_from = entry;
}

// How often an epoch; where steps are given, epochs do not count.
void put_ratio(ForeignReading& reading, const ForeignEntry& entry, std::string_view key) {
  const auto times = reading.number(entry);
  if (!times) return;
  if (!(*times > 0)) return reading.refuse(entry, "expects how often an epoch, above 0");
  if (reading.has("steps"))
    return reading.tell(entry, ForeignTold::Verdict::taken, concat("counts epochs, and steps are given: ", key));
  reading.put(key, Length::of_epochs(1 / *times).text(), entry);
}
void read_log_ratio(ForeignReading& reading, const ForeignEntry& entry) { put_ratio(reading, entry, "log.every"); }
void read_save_ratio(ForeignReading& reading, const ForeignEntry& entry) {
  put_ratio(reading, entry, "checkpoint.every");
}

void read_nodes(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto count = reading.count(entry)) reading.launch().machines = *count;
}
void read_gpus(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto count = reading.count(entry)) reading.launch().ranks = *count;
}
void read_node(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto number = reading.count(entry)) reading.launch().machine = *number;
}
void read_address(ForeignReading& reading, const ForeignEntry& entry) { reading.launch().address = entry.value.text; }
void read_port(ForeignReading& reading, const ForeignEntry& entry) {
  if (const auto port = reading.count(entry)) reading.launch().port = *port;
}

void finish_parameters(ForeignReading& reading) {
  const ForeignEntry whole = reading.whole();
  const auto standard = [&](std::string_view key, const char* value) {
    if (!reading.has(key)) reading.put(key, value, whole);
  };
  ForeignLaunch& launch = reading.launch();
  if (launch.ranks)
    launch.ranks =
        std::min<std::int64_t>(std::int64_t{*launch.ranks} * launch.machines.value_or(1), ForeignReading::kMostOf);
  ForeignFacts& facts = reading.facts();
  if (facts.goes_on)
    reading.put("resume", facts.goes_on_from ? facts.goes_on_from->value.text : "auto",
                facts.goes_on_from.value_or(*facts.goes_on));
  if (!facts.micro) facts.micro = {256, whole};
  if (!facts.rows_of_each_rank) {
    facts.global.swap(facts.micro);
    if (!facts.accumulation) facts.accumulation = {1, whole};
  }
  standard("optimizer.type", "HFAdamW");
  standard("optimizer.lr", "2e-5");
  standard("optimizer.weight_decay", "0.01");
  standard("scheduler.type", "linear_with_warmup");
  standard("scheduler.warmup", "0.01");
  standard("clip", "1.0");
  if (!reading.has("data.last")) put_last_rows(reading, whole, true);
  if (!facts.epochs && !reading.has("steps") && reading.request().schema.is_key("epochs")) standard("epochs", "3");
}

constexpr std::string_view kNoTask =
    "keel has no classification of sentences with a pretrained model yet; say what is trained: task, model and data";
constexpr std::string_view kWhat = "task|model|data";

constexpr ForeignRow kParameterRows[] = {
    answered(
        refused("data-params.data_dir", "keel does not read its folders of sentences; say in data which file is read"),
        "data"),
    answered(refused("data-params.is_dev_file", "keel holds out a part of its data; say in data how much",
                     "true|True|false|False"),
             "data"),
    refused("transformers-params.mode", "keel train trains; a run is evaluated while it trains", "train"),
    mapped("transformers-params.continue_training", "resume", read_continue,
           "auto where it is true and no path is given"),
    mapped("transformers-params.continue_training_path", "resume", read_continue_path),
    answered(refused("transformers-params.pretrained_model_dir", kNoTask), kWhat),
    mapped("transformers-params.model_dir", "run"),
    with_reader(taken("transformers-params.is_distributed",
                      "says whether batch_size is that of each process, or of all and divided by "
                      "gradient_accumulation_steps"),
                read_distributed),
    mapped("transformers-params.use_native_fp16", "precision", read_fp16),
    mapped("transformers-params.use_fairscale_optimizer_sharding", "strategy", read_optimizer_sharding,
           "zero2: gradients are sharded, too"),
    mapped("transformers-params.use_fairscale_model_sharding", "strategy", read_model_sharding, "zero3"),
    taken("transformers-params.use_fairscale_autowrap", "keel shards by transformer blocks"),
    mapped("transformers-params.use_fairscale_reshard_forward", "sharding.reshard_after_forward"),
    mapped("transformers-params.num_loader_workers", "data.workers"),
    mapped("transformers-params.batch_size", "batch.micro|batch.global", read_micro),
    taken("transformers-params.use_max_length", "rows of keel's texts have one length"),
    mapped("transformers-params.max_length", KeyRole::sequence_length),
    epochs("transformers-params.num_epochs"),
    mapped("transformers-params.gradient_accumulation_steps", "batch.global", read_accumulation),
    mapped("transformers-params.log_steps_ratio", "log.every", read_log_ratio,
           "10 is 0.1 epochs; where steps are given, nothing"),
    mapped("transformers-params.save_steps_ratio", "checkpoint.every", read_save_ratio,
           "1 is an epoch; where steps are given, nothing"),
    mapped("transformers-params.learning_rate", "optimizer.lr"),
    mapped("transformers-params.warmup_proportion", "scheduler.warmup", read_warmup),
    answered(refused("transformers-params.num_labels", kNoTask), kWhat),
    mapped("dist-params.nodes", "", read_nodes, "keel launch --num_machines"),
    mapped("dist-params.gpus", "", read_gpus, "keel launch -N, times nodes"),
    mapped("dist-params.current_node", "", read_node, "keel launch --machine_rank"),
    mapped("dist-params.master_addr", "", read_address, "keel launch --main_process_ip"),
    mapped("dist-params.master_port", "", read_port, "keel launch --main_process_port"),
};

}  // namespace

const ForeignKind kParameters = {
    .name = "parameters",
    .title = "parameters.yml of pytorch_universal_trainer",
    .signs = "transformers-params",
    .about =
        "Its optimizer is `HFAdamW` with a decay of 0.01, its schedule `linear_with_warmup`, its clipping 1.0. A last "
        "window of micro-batches that is not full was dropped there, so `data.last` is drop where data has epochs.",
    .rows = kParameterRows,
    .finish = finish_parameters,
    .reads_texts = true};

}  // namespace keel::foreign
