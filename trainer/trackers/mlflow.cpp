// MLflow: a run with its params, metrics, tags, artifacts and status.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "keel/runtime/error.h"
#include "keel/trainer/trackers/all.h"
#include "keel/trainer/trackers/http_client.h"
#include "keel/trainer/trackers/mlflow_store.h"

namespace keel {

std::string mlflow_name(std::string_view name) {
  std::string clean(name);
  for (char& c : clean) {
    const bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!is_word && std::string_view("_-./ ").find(c) == std::string_view::npos) c = '_';
  }
  const std::filesystem::path path(clean);
  const bool leads_elsewhere = path.is_absolute() || clean.ends_with('/') ||
                               path.lexically_normal().string() != clean || clean.starts_with("..") || clean == ".";
  if (leads_elsewhere) std::replace(clean.begin(), clean.end(), '/', '_');
  return clean == "." || clean == ".." ? "_" : clean;
}

std::int64_t milliseconds_since_1970() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

MlflowWords mlflow_tags(const RunDescription& run) {
  MlflowWords tags = {{"mlflow.runName", run.name},
                      {"mlflow.source.name", "keel"},
                      {"mlflow.source.type", "LOCAL"},
                      {"keel.folder", run.folder}};
  for (const auto& [key, value] : run.tags) tags.emplace_back(mlflow_name(key), value);
  if (run.is_resumed) tags.emplace_back("keel.resumed_behind_step", std::to_string(run.step));
  return tags;
}

namespace {

bool is_server(const std::string& uri) { return uri.starts_with("http://") || uri.starts_with("https://"); }

std::unique_ptr<MlflowStore> store_at(const std::string& uri) {
  constexpr std::string_view kFile = "file://";
  if (is_server(uri)) return mlflow_server(uri);
  const std::string path = uri.starts_with(kFile) ? uri.substr(kFile.size()) : uri;
  return mlflow_files(std::filesystem::absolute(path).lexically_normal().string());
}

// Metrics and tags are kept until flush(), and longer where the server is away.
class MlflowTracker : public Tracker {
 public:
  explicit MlflowTracker(const Settings& settings)
      : uri_(settings.text("uri")), experiment_(settings.text("experiment")), artifacts_(settings.text("artifacts")) {
    KEEL_CHECK(!experiment_.empty(), "experiment is empty");
    KEEL_CHECK(is_server(uri_) || uri_.starts_with("file://") || uri_.find("://") == std::string::npos,
               "uri is a folder, or begins with file://, http:// or https://, and is not '", uri_, "'");
  }

  void begin(const RunDescription& run) override {
    warn_ = run.warn;
    store_ = store_at(uri_);
    id_ = store_->open(run, experiment_);
    store_->set_tags(mlflow_tags(run));
    if (run.is_resumed && id_ == run.resumed_id) return;  // a param never changes
    MlflowWords params;
    for (const auto& [key, value] : run.settings) params.emplace_back(mlflow_name(key), value);
    store_->log_params(params);
  }
  std::string id() const override { return id_; }

  void log(std::int64_t step, double seconds, std::span<const Logged> values) override {
    constexpr std::size_t kMostKept = 100000;
    const std::int64_t time = std::llround(1000 * seconds);
    for (const Logged& each : values)
      if (const double* number = std::get_if<double>(&each.value))
        metrics_.push_back({mlflow_name(each.name), *number, time, step});
      else if (const std::int64_t* whole = std::get_if<std::int64_t>(&each.value))
        metrics_.push_back({mlflow_name(each.name), static_cast<double>(*whole), time, step});
      else text(each.name, std::get<std::string>(each.value));
    if (metrics_.size() > kMostKept)
      throw Error(concat("'", uri_, "' has been away for too long, and ", metrics_.size(), " numbers wait for it"),
                  ErrorKind::io);
  }
  void text(std::string_view name, std::string_view text) override {
    constexpr std::size_t kLongestTag = 5000;  // of MLflow
    tags_.emplace_back(mlflow_name(name), std::string(text.substr(0, kLongestTag)));
  }

  void artifact(std::string_view name, const std::string& path) override {
    const bool takes = artifacts_ == "all" || (name != "checkpoint" && artifacts_ == "model") ||
                       (name == "config" && artifacts_ == "config");
    if (!takes) return;
    try {
      upload(name, path);
    } catch (const ServerAway& away) {
      warn_(concat("'", path, "' is not among the run's artifacts: ", away.what()));
    } catch (const std::exception&) {
      if (std::filesystem::exists(path)) throw;
      warn_(concat("'", path, "' was removed before it was copied"));
    }
  }

  void flush() override {
    try {
      send();
      is_away_ = false;
    } catch (const ServerAway& away) {
      if (!is_away_) warn_(concat(away.what(), "; what is logged waits until it does"));
      is_away_ = true;
    }
  }
  void end(RunStatus status) override {
    if (id_.empty()) return;
    send();
    store_->end(status);
  }

 private:
  void send() {
    store_->set_tags(tags_);
    tags_.clear();
    store_->log_metrics(metrics_);
    metrics_.clear();
  }

  // A folder becomes one of the artifacts', which is called NAMEs.
  void upload(std::string_view name, const std::string& path) {
    namespace fs = std::filesystem;
    if (!fs::is_directory(path)) return store_->upload(path, fs::path(path).filename().string());
    for (const auto& entry : fs::recursive_directory_iterator(path))
      if (entry.is_regular_file())
        store_->upload(entry.path().string(),
                       concat(name, "s/", fs::relative(entry.path(), fs::path(path).parent_path()).string()));
  }

  std::string uri_, experiment_, artifacts_, id_;
  std::function<void(std::string_view)> warn_;
  std::unique_ptr<MlflowStore> store_;
  std::vector<MlflowMetric> metrics_;
  MlflowWords tags_;
  bool is_away_ = false;
};

}  // namespace

TrackerEntry mlflow_tracker() {
  return {.name = "mlflow",
          .summary =
              "MLflow: keys of the configuration become params, numbers metrics, texts and tags tags; status "
              "FINISHED, FAILED or KILLED",
          .rows = {{.key = "uri",
                    .type = KeyType::path,
                    .standard = "mlruns",
                    .help = "A folder of MLflow's file store, or a server, as in http://127.0.0.1:5000."},
                   {.key = "experiment",
                    .type = KeyType::text,
                    .standard = "Default",
                    .help = "What the run belongs to; made where there is none."},
                   {.key = "artifacts",
                    .type = KeyType::choice,
                    .standard = "config",
                    .help = "What is copied to the run's artifacts: the configuration; model: the final weights, too; "
                            "all: and every checkpoint.",
                    .choices = "none|config|model|all"}},
          .make = [](const Settings& settings) -> std::unique_ptr<Tracker> {
            return std::make_unique<MlflowTracker>(settings);
          }};
}

}  // namespace keel
