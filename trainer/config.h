#pragma once
// Everything that a training run needs to know, read from a YAML file and checked.
//
// The keys, their defaults and their limits are the rows of a schema (keel/trainer/schema.h). Keys of keel's own have
// members; Settings keep the values of the task's (keel/tasks/catalog.h). Members of keys that do not apply (momentum
// under AdamW) keep the values below, so equal runs have equal Configs.

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/config/settings.h"
#include "keel/config/typed_list.h"
#include "keel/dist/comm/nccl_communicator.h"
#include "keel/dist/parallel/compression.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/dist/parallel/sharding.h"
#include "keel/optim/catalog.h"
#include "keel/optim/groups.h"
#include "keel/optim/schedule.h"
#include "keel/runtime/context.h"
#include "keel/trainer/batch_limit.h"
#include "keel/trainer/curriculum.h"
#include "keel/trainer/keel_keys.h"
#include "keel/trainer/length.h"
#include "keel/trainer/metric_rule.h"
#include "keel/trainer/strategy.h"
#include "keel/trainer/weight_average_options.h"

namespace keel {

struct DataConfig {
  bool allow_changes = false;
  std::uint64_t seed = 0;    // order of the data
  std::int64_t workers = 1;  // threads of a rank that load batches
  BatchLimit batches;        // steps of an epoch
  bool operator==(const DataConfig&) const = default;
};

// Rows: sequences, or other samples. A step sums the gradients of `global` of them; `micro` are computed at a time on
// one rank.
struct BatchConfig {
  std::int64_t global = 0;
  std::int64_t micro = 0;
  bool operator==(const BatchConfig&) const = default;
};

struct OptimizerConfig : OptimizerValues {
  std::string type = "AdamW";  // a name of keel/optim/catalog.h
  double lr = 0;
  std::vector<GroupPattern> groups;
  double layer_decay = 1;
  bool operator==(const OptimizerConfig&) const = default;
};

// The learning rate's schedule. It moves on every `frequency` steps, or epochs of steps_per_epoch steps, and counts its
// own steps in them.
struct SchedulerConfig {
  enum class Interval : unsigned char { step, epoch };
  ScheduleSettings settings;
  Interval interval = Interval::step;
  std::int64_t frequency = 1;
  std::int64_t steps_per_epoch = 1;
  std::int64_t pace() const { return frequency * (interval == Interval::epoch ? steps_per_epoch : 1); }
  bool operator==(const SchedulerConfig&) const = default;
};

// What ranks shard, and how it travels. The strategy says the stage.
struct ShardingConfig : ShardingOptions {
  enum class Number : unsigned char { automatic, fp32, bf16, fp16 };
  std::string algorithm = "ordered";  // of the collectives; see keel/dist/comm/algorithm_names.h
  std::optional<DType> wire = {};     // of gradients between ranks; without: the strategy's
  Number gradient = Number::automatic;
  ReduceOrder order = ReduceOrder::written;  // of the sums among GPUs
  enum class Progress : unsigned char { automatic, poll, thread };
  Progress progress = Progress::automatic;
  enum class Path : unsigned char { automatic, nccl, host };
  Path path = Path::automatic;  // between GPUs
  bool operator==(const ShardingConfig&) const = default;
};

struct LossScaleConfig : LossScaling {
  enum class Type : unsigned char { automatic, dynamic, fixed, none };
  Type type = Type::automatic;
  double initial = 0;
  bool operator==(const LossScaleConfig&) const = default;
};

struct EvalConfig {
  Length every;             // none: only at the end
  BatchLimits batches;      // of each validation set
  bool at_start = false;    // before the first step of a run, too
  std::int64_t sanity = 0;  // batches of each set that a session tries before it writes anything
  bool operator==(const EvalConfig&) const = default;
};

struct CheckpointConfig {
  enum class Busy : unsigned char { wait, skip };
  Length every;                   // none: none by steps
  double minutes = 0;             // 0: none by time
  std::int64_t keep = 0;          // newest checkpoints that stay
  Length keep_every;              // those of such steps stay beside them; none: none
  bool async = false;             // written while training goes on
  Busy busy = Busy::wait;         // where the one before is still being written
  Length memory_every;            // between two copies in the memory of hosts; none: no copies
  std::vector<std::string> best;  // rules (keel/trainer/metric_rule.h) by which a checkpoint is the best; none: none is
  MetricMode best_mode = MetricMode::automatic;
  bool is_due_after(double seconds) const;  // since the one before, by time
  bool operator==(const CheckpointConfig&) const = default;
};

struct ProfileConfig {
  Length steps;      // of the window; none: no window
  Length start = 2;  // its first step, counted from 1
  bool operator==(const ProfileConfig&) const = default;
};

struct LogConfig {
  Length every;           // between two lines of metrics
  double peak_flops = 0;  // of a rank's device, in a second; 0: not known
  Length trace;           // steps whose computing and communication are recorded
  Length memory_growth;   // steps over which memory is compared; none: it is not
  bool operator==(const LogConfig&) const = default;
};

struct EarlyStoppingConfig {
  std::vector<std::string> metrics = {"validation_loss"};  // rules (keel/trainer/metric_rule.h)
  std::vector<std::int64_t> patience = {
      0};  // of all, or one of each: evaluations that are no better, in a row; 0: never
  bool stops() const { return patience != std::vector<std::int64_t>{0}; }
  double min_delta = 0;
  MetricMode mode = MetricMode::automatic;
  bool operator==(const EarlyStoppingConfig&) const = default;
};

struct Config : Settings {
  std::shared_ptr<const ConfigKeys> keys = keel_keys();  // Configs of different keys differ
  std::string task;                                      // its name in the catalog of `keys`
  // Of its keys, those of the task among them.
  const Schema& schema() const;
  std::uint64_t seed = 0;
  double epochs = 0;              // 0: `steps` says how long the run is
  std::int64_t steps = 0;         // with epochs those that they are, once measure_lengths() knows the data; else 0
  double epoch_steps = 0;         // of an epoch of the data; 0: it has none, or is not known yet
  std::int64_t fast_dev_run = 0;  // steps after which the run ends, of which nothing stays; 0: it is no such run
  double time_limit = 0;          // seconds; 0: none
  double session_limit = 0;       // likewise
  DataConfig data;
  BatchConfig batch;
  CurriculumConfig curriculum;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  double clip = 0;  // longest gradient, or its largest element; 0: not clipped
  ClipBy clip_by = ClipBy::norm;
  EvalConfig eval;
  CheckpointConfig checkpoint;
  EarlyStoppingConfig early_stopping;
  EmaOptions ema = {.decay = 0};  // decay 0: none
  SwaOptions swa = {.start = 0};  // start none: none
  LogConfig log;
  ProfileConfig profile;
  std::vector<TypedSettings> trackers;  // of the types of tracker_types() (keel/trainer/tracker_config.h)
  Strategy strategy;
  ShardingConfig sharding;
  Compression gradient_compression;
  LossScaleConfig loss_scale;
  std::string device;  // "auto", or what parse_device reads
  bool cuda_graph = false;
  bool check_memory = true;
  bool safe_steps = true;
  int threads = 0;  // 0: one for each processor that the process may use
  KernelChoice kernels = KernelChoice::automatic;
  std::string run;     // output folder
  std::string resume;  // "never", "auto", or the path of a checkpoint or of a run's folder
  bool operator==(const Config&) const = default;
};

// Calls f for every length that the rows of the configuration's schema reach; a row of several has several calls.
void for_each_length(Config& config, const std::function<void(const SchemaRow& row, Length& length)>& f);

// Reads YAML text; `name` is what messages call it ("c.yaml"). An override is "optimizer.lr=3e-4" or
// "model={layers: 2, width: 64}": the former replaces one value, the latter a whole section; later ones win.
// One Error reports everything that is wrong, a line each, as `c.yaml:7: optimizer.lr: ...`; it is of kind unsupported
// where nothing is wrong but that training does not offer it yet. `source` is where messages say that overrides are
// from.
//
// Where an override replaces a choice such as optimizer.type, keys of the file that do not apply to the new one are
// left out, as if they were not there; `notes` gets a line for each of them.
Config parse_config(std::string_view yaml, std::string_view name, const std::vector<std::string>& overrides = {},
                    std::string_view source = "command line", std::vector<std::string>* notes = nullptr);
// Likewise with the keys of another program: those of the Config whose stored text this is.
Config parse_config(const std::shared_ptr<const ConfigKeys>& keys, std::string_view yaml, std::string_view name,
                    const std::vector<std::string>& overrides = {}, std::string_view source = "command line",
                    std::vector<std::string>* notes = nullptr);
// Likewise from a file. A file that cannot be read is an Error of kind io.
Config load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides = {},
                   std::string_view source = "command line", std::vector<std::string>* notes = nullptr);
Config load_config(const std::shared_ptr<const ConfigKeys>& keys, const std::filesystem::path& file,
                   const std::vector<std::string>& overrides = {}, std::string_view source = "command line",
                   std::vector<std::string>* notes = nullptr);

// The resolved file: every value that applies, defaults included; parse_config with its keys gives the same Config
// back.
std::string to_yaml(const Config& config);

// The optimizer's options with those of a group; of each group that has some, in their order. An Error names what is
// wrong with them.
std::vector<OptimizerValues> group_options(const Config& config);

}  // namespace keel
