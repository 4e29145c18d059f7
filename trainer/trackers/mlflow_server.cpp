// MLflow's REST API (mlflow.org/docs/latest/rest-api.html, version 2.0).

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "keel/trainer/trackers/http_client.h"
#include "keel/trainer/trackers/mlflow_store.h"

namespace keel {
namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Protobuf's JSON has words for numbers that are not finite.
Json json_number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

Json pairs(std::span<const std::pair<std::string, std::string>> words) {
  Json list = Json::array();
  for (const auto& [key, value] : words) list.push_back({{"key", key}, {"value", value}});
  return list;
}

std::string status_word(RunStatus status) {
  return status == RunStatus::finished ? "FINISHED" : status == RunStatus::failed ? "FAILED" : "KILLED";
}

class MlflowServer : public MlflowStore {
 public:
  explicit MlflowServer(const std::string& uri) : uri_(uri), client_(uri) {
    client_.identify(environment("MLFLOW_TRACKING_USERNAME"), environment("MLFLOW_TRACKING_PASSWORD"),
                     environment("MLFLOW_TRACKING_TOKEN"));
  }

  std::string open(const RunDescription& run, const std::string& experiment) override {
    Json info = run.resumed_id.empty() ? Json() : find_run(run.resumed_id);
    if (info.is_null()) {
      if (run.is_resumed) run.warn(concat("'", uri_, "' has no run of the session before; a new one is begun"));
      info = post("runs/create", {{"experiment_id", experiment_id(experiment)},
                                  {"run_name", run.name},
                                  {"start_time", milliseconds_since_1970()}})
                 .at("run")
                 .at("info");
    } else {
      post("runs/update", {{"run_id", run.resumed_id}, {"status", "RUNNING"}});
    }
    id_ = info.at("run_id").string();
    artifacts_ = info.at("artifact_uri").string();
    warn_ = run.warn;
    return id_;
  }

  void log_params(const MlflowWords& params) override { log_words("params", params); }
  void set_tags(const MlflowWords& tags) override { log_words("tags", tags); }

  void log_metrics(std::span<const MlflowMetric> metrics) override {
    constexpr std::size_t kMost = 1000;  // in one call
    for (; !metrics.empty(); metrics = metrics.subspan(std::min(kMost, metrics.size()))) {
      Json list = Json::array();
      for (const MlflowMetric& each : metrics.first(std::min(kMost, metrics.size())))
        list.push_back({{"key", each.name},
                        {"value", json_number(each.value)},
                        {"timestamp", each.milliseconds},
                        {"step", each.step}});
      post("runs/log-batch", {{"run_id", id_}, {"metrics", list}});
    }
  }

  // Through the server, where it takes artifacts (mlflow-artifacts:/...); what lies elsewhere is not reached from here.
  void upload(const std::string& file, const std::string& name) override {
    constexpr std::string_view kScheme = "mlflow-artifacts:/";
    if (!artifacts_.starts_with(kScheme)) {
      if (!has_warned_)
        warn_(concat("artifacts lie at '", artifacts_,
                     "', where keel writes none; let the server take them "
                     "(mlflow server --serve-artifacts)"));
      has_warned_ = true;
      return;
    }
    std::string place = artifacts_.substr(kScheme.size());
    place.erase(0, place.find_first_not_of('/'));
    const HttpReply reply = client_.put_file(concat("/api/2.0/mlflow-artifacts/artifacts/", place, '/', name), file);
    check(reply, "artifacts");
  }

  void end(RunStatus status) override {
    post("runs/update", {{"run_id", id_}, {"status", status_word(status)}, {"end_time", milliseconds_since_1970()}});
  }

 private:
  static std::string path_of(const std::string& call) { return "/api/2.0/mlflow/" + call; }

  Json check(const HttpReply& reply, const std::string& call) const {
    if (reply.status == 200) return Json::parse_or_null(reply.body);
    const Json said = Json::parse_or_null(reply.body);
    const Json* const message = said.find("message");
    throw Error(concat("'", uri_, "' refuses ", call, " with status ", reply.status,
                       message != nullptr && message->is_string() ? ": " + message->string() : ""),
                ErrorKind::io);
  }
  Json post(const std::string& call, const Json& body) {
    return check(client_.post(path_of(call), body.dump(-1, BadUtf8::replace)), call);
  }
  // Null where there is none.
  Json get(const std::string& call) {
    const HttpReply reply = client_.get(path_of(call));
    return reply.status == 404 ? Json() : check(reply, call.substr(0, call.find('?')));
  }

  Json find_run(const std::string& id) {
    const Json found = get("runs/get?run_id=" + HttpClient::escaped(id));
    return found.is_null() ? Json() : found.at("run").at("info");
  }

  std::string experiment_id(const std::string& name) {
    const Json found = get("experiments/get-by-name?experiment_name=" + HttpClient::escaped(name));
    if (!found.is_null()) return found.at("experiment").at("experiment_id").string();
    return post("experiments/create", {{"name", name}}).at("experiment_id").string();
  }

  void log_words(const std::string& kind, std::span<const std::pair<std::string, std::string>> words) {
    constexpr std::size_t kMost = 100;  // in one call
    for (; !words.empty(); words = words.subspan(std::min(kMost, words.size())))
      post("runs/log-batch", {{"run_id", id_}, {kind, pairs(words.first(std::min(kMost, words.size())))}});
  }

  std::string uri_, id_, artifacts_;
  HttpClient client_;
  std::function<void(std::string_view)> warn_;
  bool has_warned_ = false;
};

}  // namespace

std::unique_ptr<MlflowStore> mlflow_server(const std::string& uri) { return std::make_unique<MlflowServer>(uri); }

}  // namespace keel
