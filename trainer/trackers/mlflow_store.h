#pragma once
// Where MLflow keeps runs: a folder of files, or a server.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/trainer/tracker.h"

namespace keel {

struct MlflowMetric {
  std::string name;
  double value;
  std::int64_t milliseconds, step;  // the former since 1970
};

using MlflowWords = std::vector<std::pair<std::string, std::string>>;  // tags or params, by name

// Names are such as MLflow accepts (mlflow_name()). Everything that fails is an Error.
class MlflowStore {
 public:
  virtual ~MlflowStore() = default;
  // Makes a run of the experiment, which is made where there is none; or goes on with run.resumed_id, where that is
  // there. Returns its id.
  virtual std::string open(const RunDescription& run, const std::string& experiment) = 0;
  virtual void log_params(const MlflowWords& params) = 0;
  virtual void set_tags(const MlflowWords& tags) = 0;
  virtual void log_metrics(std::span<const MlflowMetric> metrics) = 0;
  // Copies a file; `name` is its path among the run's artifacts.
  virtual void upload(const std::string& file, const std::string& name) = 0;
  virtual void end(RunStatus status) = 0;
};

// Letters, digits and _ - . / and spaces; a path that leads nowhere else. Everything else becomes _.
std::string mlflow_name(std::string_view name);
std::int64_t milliseconds_since_1970();
// What a run has from the start: MLflow's own tags, and the description's.
MlflowWords mlflow_tags(const RunDescription& run);

// MLflow's file store, in its layout (mlflow/store/tracking/file_store.py): meta.yaml, params, metrics, tags and
// artifacts of each run, below a folder for its experiment.
std::unique_ptr<MlflowStore> mlflow_files(std::string root);
// By the REST API of a server, "http://host:5000". MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or
// MLFLOW_TRACKING_TOKEN, say who asks. A server that is away is ServerAway (http_client.h).
std::unique_ptr<MlflowStore> mlflow_server(const std::string& uri);

}  // namespace keel
