#include "keel/trainer/own_run.h"

#include <filesystem>
#include <limits>
#include <optional>

#include "keel/config/yaml_reader.h"
#include "keel/dist/checkpoint/async_save.h"
#include "keel/dist/checkpoint/load.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/file.h"
#include "keel/trainer/checkpoint_list.h"
#include "keel/trainer/run_files.h"
#include "keel/trainer/settle_checkpoint.h"
#include "keel/trainer/shared_folder.h"
#include "keel/trainer/tracker_config.h"
#include "keel/trainer/tracker_host.h"

namespace keel {
namespace {

constexpr std::string_view kHead =
    "# The settings of a training loop of one's own; `keel train` does not go on from here.\n";
constexpr const char* kState = "loop";  // the member of a checkpoint's state that is the loop's own

std::string config_of(const OwnRunOptions& options) {
  Json settings = Json::object();
  for (const auto& [name, text] : options.settings) settings[name] = text;
  return concat(kHead, settings.dump(2), '\n');
}

RunDescription describe_loop(const RunFolder& folder, const OwnRunOptions& options, int ranks, std::int64_t step,
                             bool is_resumed) {
  RunDescription run;
  run.name = folder.name();
  run.folder = std::filesystem::absolute(folder.path()).lexically_normal().string();
  run.config = config_of(options);
  run.settings = options.settings;
  run.tags = run_tags(ranks);
  run.step = step;
  run.is_resumed = is_resumed;
  return run;
}

}  // namespace

struct OwnRun::Parts {
  // Records go to trackers, messages to the program.
  class Observer : public TrainObserver {
   public:
    explicit Observer(std::function<void(LogLevel, std::string_view)> tell) : tell_(std::move(tell)) {}
    void on_message(LogLevel level, std::string_view message) override {
      if (tell_) tell_(level, message);
    }
    void on_record(std::int64_t step, RecordKind /*kind*/, std::span<const Logged> values) override {
      if (trackers) trackers->log(step, values);
    }

    std::optional<TrackerHost> trackers;  // of the first rank

   private:
    std::function<void(LogLevel, std::string_view)> tell_;
  };

  Parts(const std::string& path, Sharded& its_engine, Communicator& all, const OwnRunOptions& given)
      : folder(path),
        engine(its_engine),
        ranks(all.split(0, all.rank())),
        options(given),
        observer(given.tell),
        files(folder, observer) {
    std::vector<HostedTracker> trackers;
    together(*ranks, [&] {
      const YamlDocument list = read_yaml(options.trackers);
      KEEL_CHECK(options.keep >= 1, "keep: ", options.keep, " checkpoints; at least 1 stays");
      KEEL_CHECK(list.problems.empty(), "trackers: ", list.problems.front().message);
      trackers = make_trackers(tracker_types().read(list.root));
      for (const HostedTracker& each : trackers)
        KEEL_CHECK(each.every.is_none(), "trackers: ", each.label,
                   ": every thins the records of `keel train`; a loop of one's own records what it wants");
      if (is_first()) take_folder();
    });
    check_shared_folder(folder.path(), *ranks);
    const bool is_resumed = load();
    together(*ranks, [&] {
      if (!is_first()) return;
      files.begin(config_of(options), {}, is_resumed ? std::optional(step) : std::nullopt);
      if (trackers.empty()) return;
      observer.trackers.emplace(std::move(trackers), describe_loop(folder, options, ranks->size(), step, is_resumed),
                                [this](LogLevel level, std::string_view text) { observer.on_message(level, text); });
      observer.trackers->artifact("config", std::filesystem::absolute(folder.config()).lexically_normal().string());
    });
    background.emplace(engine, *ranks);
    is_heard = gather_values(*ranks, options.tell ? 1 : 0).front() == 1;
  }

  bool is_first() const { return ranks->rank() == 0; }
  void tell(LogLevel level, const std::string& message) {
    if (is_first()) observer.on_message(level, message);
  }

  void take_folder() {
    files.take();
    std::error_code ignored;
    KEEL_CHECK(!std::filesystem::exists(folder.config(), ignored) || read_text_file(folder.config()).starts_with(kHead),
               "'", folder.path(), "' holds a run of `keel train`; give the loop another folder");
  }

  // The newest checkpoint of fewer steps, on every rank; without a path where there is none.
  Checkpoint find(std::int64_t below) {
    std::optional<Checkpoint> newest;
    together(*ranks, [&] {
      if (!is_first()) return;
      newest = newest_checkpoint(
          folder, [&](std::string_view complaint) { observer.on_message(LogLevel::warning, complaint); }, below);
      KEEL_CHECK(newest || folder.checkpoint_steps().empty(), "no checkpoint in '", folder.path(),
                 "' is whole; give the loop another folder");
    });
    return broadcast_checkpoint(newest.value_or(Checkpoint()), *ranks);
  }

  // Whether there was a checkpoint to go on from.
  bool load() {
    for (std::int64_t below = std::numeric_limits<std::int64_t>::max();;) {
      const Checkpoint found = find(below);
      if (found.path.empty()) return false;
      check_readable_by_all(found.path, *ranks);
      together(*ranks, [&] { check_checkpoint(found.path, found.manifest, engine); });
      try {
        load_checkpoint(found.path, found.manifest, engine, *ranks);
        step = newest = found.state.step;
        if (found.manifest.state.contains(kState)) state = found.manifest.state.at(kState);
        return true;
      } catch (const Error& error) {
        if (!is_thrown_by_all(*ranks)) throw;
        tell(LogLevel::warning, concat("the checkpoint of step ", found.state.step, " is not usable: ", error.what()));
      }
      below = found.state.step;
    }
  }

  Json state_of(const Json& own) const {
    TrainState reached;
    reached.step = step;
    Json all = json_of(reached);
    all[kState] = own;
    return all;
  }

  std::function<void()> settling() const {
    return [folder = folder, step = step, keep = options.keep] {
      CheckpointConfig config;
      config.keep = keep;
      settle_checkpoint(folder, step, config);
    };
  }

  void take(const SaveResult& result) {
    if (!result.failure.empty()) {
      const std::string text = concat("no checkpoint of step ", saving, ": ", result.failure);
      if (!is_heard) throw AgreedError(text, ErrorKind::io);
      return tell(LogLevel::error, text);
    }
    newest = saving;
    if (!result.warning.empty()) tell(LogLevel::warning, result.warning);
    if (observer.trackers) observer.trackers->artifact("checkpoint", std::filesystem::absolute(result.path).string());
  }

  void finish_save() {
    if (background->is_under_way()) take(background->finish());
  }

  RunFolder folder;
  Sharded& engine;
  std::unique_ptr<Communicator> ranks;
  OwnRunOptions options;
  Observer observer;
  RunFiles files;  // of the first rank
  std::optional<AsyncSave> background;
  std::int64_t step = 0;
  Json state = Json::object();
  bool is_heard = false;     // what the first rank tells
  std::int64_t saving = -1;  // step of the save under way
  std::int64_t newest = -1;  // step of the newest checkpoint
};

OwnRun::OwnRun(const std::string& folder, Sharded& engine, Communicator& ranks, const OwnRunOptions& options)
    : parts_(std::make_unique<Parts>(folder, engine, ranks, options)) {}

OwnRun::~OwnRun() = default;

std::int64_t OwnRun::step() const { return parts_->step; }
const Json& OwnRun::state() const { return parts_->state; }

void OwnRun::count_step() {
  ++parts_->step;
  if (const std::optional<SaveResult> result = parts_->background->poll()) parts_->take(*result);
}

void OwnRun::log(std::span<const Logged> values) {
  if (parts_->is_first()) parts_->files.write(parts_->step, values);
}

void OwnRun::log(std::span<const NamedNumber> values) {
  std::vector<Logged> record;
  for (const NamedNumber& each : values) record.push_back({each.name, each.value});
  log(record);
}

void OwnRun::save(const Json& state) {
  Parts& p = *parts_;
  p.finish_save();
  p.saving = p.step;
  const std::string path = p.folder.checkpoint(p.step);
  try {
    p.background->begin(path, p.state_of(state), p.settling());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::io || !is_thrown_by_all(*p.ranks)) throw;
    p.take({.path = path, .failure = error.what()});
  }
}

void OwnRun::end(const Json& state) {
  Parts& p = *parts_;
  p.finish_save();
  if (p.newest != p.step) {
    p.saving = p.step;
    p.take(save_checkpoint(p.folder.checkpoint(p.step), p.engine, *p.ranks, p.state_of(state), p.settling()));
  }
  if (!p.observer.trackers) return;
  p.observer.trackers->artifact("model", std::filesystem::absolute(p.folder.model()).string());
  p.observer.trackers->end(RunStatus::finished);
}

}  // namespace keel
