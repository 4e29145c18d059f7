// A file of JSON lines: everything that a tracker is told.

#include <optional>

#include "keel/runtime/append_file.h"
#include "keel/runtime/file.h"
#include "keel/trainer/trackers/all.h"
#include "keel/trainer/trackers/json_events.h"
#include "keel/trainer/trackers/paths.h"

namespace keel {
namespace {

// All lines but the records behind `last_step`, and a line that a crash cut short.
std::string kept_events(std::string_view text, std::int64_t last_step) {
  std::string kept;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    const Json event = Json::parse_or_null(text.substr(0, end));
    const Json *kind = event.find("event"), *step = event.find("step");
    const bool is_record = kind != nullptr && kind->is_string() && kind->string() == "record";
    const bool is_late = is_record && step != nullptr && step->is_integer() && step->integer() > last_step;
    if (!is_late) kept += text.substr(0, end + 1);
    text.remove_prefix(end + 1);
  }
  return kept;
}

class JsonlTracker : public Tracker {
 public:
  explicit JsonlTracker(const Settings& settings) : path_(settings.text("path")) {}

  void begin(const RunDescription& run) override {
    const std::string path = tracker_path(run, path_);
    make_folders_for(path);
    const std::string before = text_of_earlier_session(run, path);
    if (const std::string kept = kept_events(before, run.step); kept.size() != before.size())
      write_text_file(path, kept);
    file_.emplace(path);
    file_->write(start_line(run));
  }
  void log(std::int64_t step, double seconds, std::span<const Logged> values) override {
    file_->write(record_line(step, seconds, values));
  }
  void text(std::string_view name, std::string_view text) override { file_->write(text_line(name, text)); }
  void artifact(std::string_view name, const std::string& path) override { file_->write(artifact_line(name, path)); }
  void end(RunStatus status) override {
    if (file_) file_->write(end_line(status));
  }

 private:
  std::string path_;
  std::optional<AppendFile> file_;
};

}  // namespace

TrackerEntry jsonl_tracker() {
  return {
      .name = "jsonl",
      .summary = "a file of JSON lines: the run, its records with their times, texts, artifacts, and how it ended",
      .rows = {{.key = "path",
                .type = KeyType::path,
                .standard = "tracker.jsonl",
                .help = "The file; in the run's folder unless it is a full path. `<name>` in it is the run's name."}},
      .make = [](const Settings& settings) -> std::unique_ptr<Tracker> {
        return std::make_unique<JsonlTracker>(settings);
      }};
}

}  // namespace keel
