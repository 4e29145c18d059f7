#include "keel/trainer/schema.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "keel/config/values.h"
#include "keel/dist/comm/algorithm_names.h"
#include "keel/optim/catalog.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/trainer/schema_rows.h"
#include "keel/trainer/strategies.h"
#include "keel/trainer/tracker_config.h"

namespace keel {
namespace {

// An accessor: a captureless lambda from a Config to the member at `path`; and the field that it reaches.
#define KEEL_AT(path) \
  [](Config & config) -> auto& { return config.path; }
#define KEEL_FIELD(path) member(+KEEL_AT(path))

// The enumerators of the member are in the order of `choices`.
template <class Accessor>
FieldPtr choice(Accessor, std::string_view choices) {
  using Enum = std::remove_reference_t<decltype(Accessor{}(std::declval<Config&>()))>;
  static_assert(std::is_enum_v<Enum>);
  return choice_field([](const Config& config) { return static_cast<int>(Accessor{}(const_cast<Config&>(config))); },
                      [](Config& config, int index) { Accessor{}(config) = static_cast<Enum>(index); }, choices);
}

FieldPtr strategy_field() {
  return parsed_field([](const Config& config) { return to_string(config.strategy); },
                      [](Config& config, std::string_view text) { config.strategy = parse_strategy(text); },
                      kStrategyGrammar);
}

// Kept in the strategy, which then says it.
FieldPtr precision_field() {
  return parsed_field([](const Config&) { return std::string("auto"); },
                      [](Config& config, std::string_view text) {
                        if (text != "auto") config.strategy.precision = parse_precision(text);
                      },
                      "auto, fp32, bf16 or fp16");
}

FieldPtr device_field() {
  return parsed_field([](const Config& config) { return config.device; },
                      [](Config& config, std::string_view text) {
                        if (text != "auto") parse_device(text);
                        config.device = text;
                      },
                      "auto, cpu, cuda:0, emulated:0");
}

FieldPtr resume_field() {
  return parsed_field([](const Config& config) { return text_to_yaml(config.resume); },
                      [](Config& config, std::string_view text) {
                        KEEL_CHECK(!text.empty(), "is empty");
                        if (text == "true" || text == "yes") config.resume = "auto";
                        else if (text == "false" || text == "no") config.resume = "never";
                        else config.resume = with_home_folder(text);
                      },
                      "never, auto or a path");
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += concat(text.empty() ? "" : "|", name);
  return text;
}

// keel's own algorithms of collectives, by the names that `keel comm` has for them.
FieldPtr algorithm_field() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> own;
    for (const AlgorithmName& one : algorithm_names())
      if (!one.algorithm.empty()) own.emplace_back(one.name);
    return own;
  }();
  static const std::string choices = joined(names);
  return choice_field(
      [](const Config& config) {
        return static_cast<int>(std::find(names.begin(), names.end(), config.sharding.algorithm) - names.begin());
      },
      [](Config& config, int index) { config.sharding.algorithm = names[static_cast<std::size_t>(index)]; }, choices);
}

std::string_view tracker_help() {
  static const std::string help = [] {
    std::string text =
        "Where the numbers of the run go beside its folder, as in [{type: csv}, {type: command, command: [python3, "
        "mine.py]}]; docs/trackers.md has the keys of each type.";
    for (const TrackerEntry& entry : trackers()) text += concat(' ', entry.name, ": ", entry.summary, '.');
    return text;
  }();
  return help;
}

std::string_view closure_optimizers() {
  static const std::string choices = [] {
    std::vector<std::string> names;
    for (const OptimizerEntry& entry : optimizers())
      if (entry.requirements.closure) names.emplace_back(entry.name);
    return joined(names);
  }();
  return choices;
}

constexpr Range at_least(double low) { return {.low = low}; }
constexpr Range between(double low, double high) { return {.low = low, .high = high}; }

constexpr Condition kAlways = {};
constexpr Condition kProfiles = {"profile.steps", "0", true};
constexpr Condition kBySteps = {"epochs", "0"};
Condition by_gradient() { return {"optimizer.type", closure_optimizers(), true}; }
Condition by_closure() { return {"optimizer.type", closure_optimizers()}; }

SchemaRow pacing(SchemaRow row) {
  row.on_resume = OnResume::paces;
  return row;
}
SchemaRow under(const Condition& when, SchemaRow row) {
  row.when = when;
  return row;
}
SchemaRow ignored(SchemaRow row) {
  row.on_resume = OnResume::ignores;
  return row;
}

// key, member, default, limits, condition, help, other words. A condition and a "=key" name rows above.
std::vector<SchemaRow> own_rows() {
  return {
      engine_rows("seed").front(),
      pacing({"epochs", KEEL_FIELD(epochs), "0", at_least(0), kAlways,
              "Epochs of the data to train, fractions included, in place of steps; 0: as many steps as that key says. "
              "The data must have epochs, as csv and JSON lines have, and a text read at random places has not.",
              "max_epochs|num_epochs|num_train_epochs"}),
      pacing({"steps", KEEL_FIELD(steps), "", at_least(1), kBySteps, "Optimizer steps to train.",
              "max_steps|max_iters|iterations"}),
      {"time_limit", KEEL_FIELD(time_limit), "0", at_least(0), kAlways,
       "Seconds of training, all sessions together, after which the run ends in good order; 0: no limit. Where the "
       "time "
       "ends "
       "it before its steps, the learning rates end there, too."},
      ignored(
          {"session_limit", KEEL_FIELD(session_limit), "0", at_least(0), kAlways,
           "Seconds after which a session saves and ends, to be gone on with by resume=auto; 0: no limit. For jobs in "
           "queues: the "
           "learning rates do not know of it."}),

      ignored({"data.allow_changes", KEEL_FIELD(data.allow_changes), "false", kAny, kAlways,
               "Go on where ranks find different data at a path, or a resumed run other data than before, to train or "
               "to validate on; false: that is an error."}),
      {"data.seed", KEEL_FIELD(data.seed), "=seed", kAny, kAlways, "Seed of the data's order alone."},
      {"data.batches", KEEL_FIELD(data.batches), "0", kAny, kAlways,
       "Steps of each epoch, its first ones, or a part of them as in 10%; 0: all. For trials on less data, which must "
       "have epochs.",
       "limit_train_batches"},
      ignored(
          {"data.workers", KEEL_FIELD(data.workers), "1", between(0, 256), kAlways,
           "Threads of each rank that load batches ahead of the steps; 0: the thread that trains loads them. Results "
           "do not depend on it.",
           "num_workers|loader_workers|num_loader_workers|dataloader_num_workers"}),

      {"batch.global", KEEL_FIELD(batch.global), "12", between(1, 16777216), kAlways,
       "Sequences whose gradients make one optimizer step.", "batch_size|size"},
      {"batch.micro", KEEL_FIELD(batch.micro), "=batch.global", between(1, 16777216), kAlways,
       "Sequences that a rank computes at a time. Less needs less memory, for the same result.",
       "micro_batch|per_device"},

      under(by_gradient(), engine_rows("clip").front()),
      {"clip", KEEL_FIELD(clip), "0", at_least(0), by_closure(),
       "Must be 0: L-BFGS compares gradients with each other, so none is scaled down."},
      under(by_gradient(), engine_rows("clip_by").front()),

      ignored({"checkpoint.every", KEEL_FIELD(checkpoint.every), "500", at_least(0), kAlways,
               "Between two checkpoints, in steps, epochs or a part of the run; 0: none by steps. The end of a session "
               "makes one "
               "in any case.",
               "save_every|checkpoint_every"}),
      ignored({"checkpoint.minutes", KEEL_FIELD(checkpoint.minutes), "0", at_least(0), kAlways,
               "Minutes between two checkpoints, by the first rank's clock; 0: none by time.",
               "save_interval|every_minutes"}),
      ignored({"checkpoint.keep", KEEL_FIELD(checkpoint.keep), "2", at_least(1), kAlways,
               "Newest checkpoints that stay on disk.", "max_checkpoints|save_total_limit|total_limit"}),
      ignored(
          {"checkpoint.keep_every", KEEL_FIELD(checkpoint.keep_every), "0", at_least(0), kAlways,
           "Checkpoints of such steps stay beside them: 1000 keeps those of steps 1000, 2000 and so on, 1 epoch those "
           "at the ends of epochs; 0: none."}),
      ignored({"checkpoint.async", KEEL_FIELD(checkpoint.async), "false", kAny, kAlways,
               "Copy the numbers and write them while training goes on. Costs memory of the processor for the copy.",
               "async_save|background"}),
      ignored(
          {"checkpoint.busy", choice(KEEL_AT(checkpoint.busy), "wait|skip"), "wait", kAny, kAlways,
           "With checkpoint.async, where one is due while the one before is still being written: wait for that one, "
           "or skip "
           "the "
           "new one."}),
      ignored(
          {"checkpoint.memory_every", KEEL_FIELD(checkpoint.memory_every), "0", at_least(0), kAlways,
           "Between two copies, in steps, epochs or a part of the run, of the newest state in the memory of hosts "
           "(/dev/shm), of which "
           "each rank has one "
           "on its own host and one on another; resume=auto goes on from them where no checkpoint is newer. 0: none."}),
      ignored({"log.every", KEEL_FIELD(log.every), "10", at_least(1), kAlways,
               "Between two lines of metrics.jsonl, in steps, epochs or a part of the run.", "log_every|log_interval"}),
      ignored({"log.peak_flops", KEEL_FIELD(log.peak_flops), "0", at_least(0), kAlways,
               "Floating-point operations that the device of a rank could do in a second in the numbers that are "
               "computed in, such as 989e12: metrics.jsonl has the share of it that the model's products use. 0: no "
               "such share.",
               "peak_flops|device_peak_flops"}),
      ignored({"log.trace", KEEL_FIELD(log.trace), "0", between(0, 10000), kAlways,
               "Steps, from a session's second on, whose computing, communication and memory go to trace.json and "
               "memory.json, on one clock for all ranks (keel show, chrome://tracing, Perfetto).",
               "profiler"}),
      ignored({"log.memory_growth", KEEL_FIELD(log.memory_growth), "100", at_least(0), kAlways,
               "Memory that grows over three times so many steps, epochs or parts of the run, from each to the next, "
               "is a warning that says whose "
               "memory it is; 0: nobody looks.",
               "garbage_check|leak_check"}),
      ignored({"profile.steps", KEEL_FIELD(profile.steps), "0", between(0, 10000), kAlways,
               "A window of steps, epochs or a part of the run, whose computing, communication and memory each rank "
               "writes into files of its own, trace.RANK.json and memory.RANK.json, as log.trace does into one for "
               "all; 0: no window."}),
      ignored({"profile.start", KEEL_FIELD(profile.start), "2", at_least(1), kProfiles,
               "The first step of the window, in steps, epochs or a part of the run. A session that begins inside it "
               "records the rest."}),

      ignored({"tracker", list_field(+KEEL_AT(trackers), tracker_types(), "a list of trackers, or one"), "[]", kAny,
               kAlways, tracker_help(), "trackers|log_with|report_to|logger"}),

      {"strategy", strategy_field(), "fp32", kAny, kAlways,
       "What ranks shard, and the numbers to compute in; auto: the numbers this processor multiplies fastest, chosen "
       "when the run begins. A stage may stand alone, as in zero2. Behind the precision stands where the optimizer's "
       "state lies, and then where weights do: cpu, the host's memory, or nvme, a file. One process alone treats ddp "
       "and zero1 to zero3 alike. `keel strats` lists further spellings.",
       "strat"},
      {"precision", precision_field(), "auto", kAny, kAlways,
       "Numbers to compute in, where the strategy does not say them, as zero2 alone; auto: as the strategy says.",
       "dtype|mixed_precision"},
      {"sharding.algorithm", algorithm_field(), "ordered", kAny, kAlways,
       "How messages make up a collective. ordered, direct and flat add by rank in one sum, so that all strategies "
       "give "
       "the same "
       "bits; the others round partial sums. `keel comm --help` says what each does, `keel compare` what it costs."},
      engine_rows("sharding.wire").front(),
      {"sharding.gradient", choice(KEEL_AT(sharding.gradient), "auto|fp32|bf16|fp16"), "auto", kAny, kAlways,
       "Numbers in which the gradients of several micro-batches are summed: fp32, or those of the strategy; auto: "
       "fp32.",
       "grad_accum_dtype"},
      {"sharding.order", choice(KEEL_AT(sharding.order), "written|fast"), "written", kAny, kAlways,
       "In which order gradients are summed; written: by rank, so that all strategies give the same bits; fast: NCCL's "
       "own "
       "between GPUs. Processors sum in the written one."},
      ignored(
          {"sharding.path", choice(KEEL_AT(sharding.path), "auto|nccl|host"), "auto", kAny, kAlways,
           "Between GPUs: nccl, or through the memory of their processors; auto: nccl where keel was built with it.",
           "backend|distributed_backend"}),
      ignored({"sharding.progress", choice(KEEL_AT(sharding.progress), "auto|poll|thread"), "auto", kAny, kAlways,
               "What goes on with communication while a rank computes: poll, between operations; thread, one for it "
               "alone, which "
               "pays where it has a processor of its own; auto: thread where there is one to spare."}),

      {"loss_scale.type", choice(KEEL_AT(loss_scale.type), "auto|dynamic|fixed|none"), "auto", kAny, kAlways,
       "Factor on the loss against gradients too small for fp16; auto: dynamic under fp16, else none."},
      engine_rows("loss_scale.initial").front(),

      ignored({"device", device_field(), "auto", kAny, kAlways,
               "Where to compute; auto: a GPU where there is one, else the processor. Without a number each rank of a "
               "machine "
               "takes "
               "its own."}),
      ignored({"cuda_graph", KEEL_FIELD(cuda_graph), "false", kAny, kAlways,
               "Record forward and backward of a micro-batch once and repeat them with one call, which spares the host "
               "work on a "
               "GPU. Needs one, and a model without dropout.",
               "graph|cuda_graphs"}),
      ignored({"check_memory", KEEL_FIELD(check_memory), "true", kAny, kAlways,
               "Refuse a run that needs more memory than this machine, or the group of processes that it belongs to, "
               "has, or "
               "than "
               "is free on its GPU; false: go on regardless. `keel plan` shows what a run needs."}),
      ignored(
          {"safe_steps", KEEL_FIELD(safe_steps), "true", kAny, kAlways,
           "On one rank, a step that finds no memory is tried once more, and then in smaller micro-batches, in which "
           "all later steps are computed, too; a warning says so. With several ranks it ends the run.",
           "safe_mode"}),
      ignored({"threads", KEEL_FIELD(threads), "0", between(0, 4096), kAlways,
               "Processor threads of a rank; 0: one for each processor, shared among the ranks of a machine.",
               "num_threads"}),
      {"kernels", choice(KEEL_AT(kernels), "auto|plain"), "auto", kAny, kAlways,
       "auto: the fastest implementation of each operation; plain: only keel's own."},
      ignored({"run", KEEL_FIELD(run), "runs/<name>", kAny, kAlways, "Folder for everything that the run writes.",
               "output|out_dir|output_dir|run_dir"}),
      ignored(
          {"resume", resume_field(), "never", kAny, kAlways,
           "never: a folder that holds a run is left alone; auto: go on from its newest checkpoint, or begin where "
           "there is no run yet; or the path of a checkpoint, or of a run's folder or its checkpoints, which means the "
           "newest. true is auto, false never."}),
  };
}

#undef KEEL_FIELD
#undef KEEL_AT

// The rows of the optimizer and those of the scheduler stand before `clip`, those of callbacks before log.every.
std::vector<SchemaRow> all_rows(std::span<const StrategyEntry> strategies) {
  std::vector<SchemaRow> all = own_rows();
  const auto insert = [&](std::string_view before, const std::vector<SchemaRow>& section) {
    const auto place = std::find_if(all.begin(), all.end(), [&](const SchemaRow& row) { return row.key == before; });
    all.insert(place, section.begin(), section.end());
  };
  insert("sharding.algorithm", engine_rows("sharding."));
  insert("loss_scale.type", engine_rows("gradient_compression."));
  insert("device", engine_rows("loss_scale."));
  insert("loss_scale.type", outer_rows(strategies));
  insert("clip", optimizer_rows());
  insert("clip", scheduler_rows());
  insert("log.every", callback_rows());
  insert("checkpoint.every", evaluation_rows());
  insert("time_limit", trial_rows());
  insert("clip", curriculum_rows());
  return all;
}

}  // namespace

const std::shared_ptr<const Schema>& own_schema() {
  static const std::shared_ptr<const Schema> schema = schema_with(keel_strategies());
  return schema;
}

std::shared_ptr<const Schema> schema_with(std::span<const StrategyEntry> strategies) {
  return std::make_shared<const Schema>(all_rows(strategies), retired_keys());
}

}  // namespace keel
