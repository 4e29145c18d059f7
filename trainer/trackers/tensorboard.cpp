// Event files, as TensorBoard reads them.

#include <chrono>
#include <cmath>
#include <optional>

#include "keel/trainer/trackers/all.h"
#include "keel/trainer/trackers/event_file.h"
#include "keel/trainer/trackers/json_events.h"
#include "keel/trainer/trackers/paths.h"

namespace keel {
namespace {

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class TensorBoardTracker : public Tracker {
 public:
  explicit TensorBoardTracker(const Settings& settings) : folder_(settings.text("folder")) {}

  void begin(const RunDescription& run) override {
    const std::string folder = tracker_path(run, folder_);
    make_folders_for(folder + "/events");
    step_ = run.step;
    file_.emplace(folder, seconds_since_1970(), run.is_resumed ? std::optional(run.step) : std::nullopt);
    Json values = Json::object();
    for (const auto& [key, value] : run.settings) values[key] = json_of_setting(value);
    file_->write_hparams(seconds_since_1970(), run.name, values.members());
    for (const auto& [key, value] : run.tags) text(key, value);
    text("config", "```yaml\n" + run.config + "```");
  }
  void log(std::int64_t step, double seconds, std::span<const Logged> values) override {
    EventFile::Scalars scalars;
    for (const Logged& each : values)
      if (const double* number = std::get_if<double>(&each.value)) scalars.emplace_back(each.name, *number);
      else if (const std::int64_t* whole = std::get_if<std::int64_t>(&each.value))
        scalars.emplace_back(each.name, static_cast<double>(*whole));
      else file_->write_text(step, seconds, each.name, std::get<std::string>(each.value));
    if (!scalars.empty()) file_->write_scalars(step, seconds, scalars);
    step_ = step;
  }
  void text(std::string_view name, std::string_view text) override {
    file_->write_text(step_, seconds_since_1970(), name, text);
  }
  void artifact(std::string_view name, const std::string& path) override {
    text(name == "config" ? "config_path" : name, path);
  }
  void end(RunStatus status) override {
    if (file_) file_->write_end(seconds_since_1970(), status == RunStatus::finished);
  }

 private:
  std::string folder_;
  std::int64_t step_ = 0;
  std::optional<EventFile> file_;
};

}  // namespace

TrackerEntry tensorboard_tracker() {
  return {.name = "tensorboard",
          .summary =
              "event files for TensorBoard: numbers under SCALARS, texts under TEXT, the configuration under "
              "HPARAMS",
          .rows = {{.key = "folder",
                    .type = KeyType::path,
                    .standard = "tensorboard",
                    .help = "The folder; in the run's unless it is a full path. `<name>` in it is the run's name."}},
          .make = [](const Settings& settings) -> std::unique_ptr<Tracker> {
            return std::make_unique<TensorBoardTracker>(settings);
          }};
}

}  // namespace keel
