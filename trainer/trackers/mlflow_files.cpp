#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <random>

#include "keel/config/values.h"
#include "keel/config/yaml_reader.h"
#include "keel/runtime/append_file.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/trainer/trackers/mlflow_store.h"
#include "keel/trainer/trackers/paths.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

// Of MLflow's RunStatus.
constexpr int kRunning = 1;
int number_of(RunStatus status) { return status == RunStatus::finished ? 3 : status == RunStatus::failed ? 4 : 5; }

std::string random_digits(std::string_view alphabet, int count) {
  std::random_device source;
  std::string digits;
  for (int i = 0; i < count; ++i) digits += alphabet[source() % alphabet.size()];
  return digits;
}

std::string member_of(const YamlNode& mapping, std::string_view key) {
  for (const YamlEntry& entry : mapping.entries)
    if (entry.key == key) return entry.value.text;
  return "";
}

void write_file(const std::string& path, std::string_view text) {
  make_folders_for(path);
  write_text_file(path, text);
}

class MlflowFiles : public MlflowStore {
 public:
  explicit MlflowFiles(std::string root) : root_(std::move(root)) {}

  std::string open(const RunDescription& run, const std::string& experiment) override {
    experiment_ = find_experiment(experiment).value_or("");
    if (experiment_.empty()) experiment_ = make_experiment(experiment);
    name_ = run.name;
    id_ = run.resumed_id;
    const bool goes_on = !id_.empty() && fs::exists(run_file("meta.yaml"));
    if (goes_on) {
      const YamlDocument meta = read_yaml(read_text_file(run_file("meta.yaml")));
      const std::string start = member_of(meta.root, "start_time");
      std::from_chars(start.data(), start.data() + start.size(), start_);
      take_back(run.step);
    } else {
      if (run.is_resumed)
        run.warn(concat("'", root_, "' has no run of the session before in the experiment ", experiment,
                        "; a new one is begun"));
      id_ = random_digits("0123456789abcdef", 32);
      start_ = milliseconds_since_1970();
      for (const char* folder : {"params", "metrics", "tags", "artifacts"})
        make_folders_for(run_file(concat(folder, "/x")));
    }
    write_meta(kRunning, "null");
    return id_;
  }
  void log_params(const MlflowWords& params) override {
    for (const auto& [name, value] : params) write_file(run_file("params/" + name), value);
  }
  void set_tags(const MlflowWords& tags) override {
    for (const auto& [name, value] : tags) write_file(run_file("tags/" + name), value);
  }
  void log_metrics(std::span<const MlflowMetric> metrics) override {
    std::map<std::string, std::string> lines;
    for (const MlflowMetric& each : metrics)
      lines[each.name] += fmt::format("{} {} {}\n", each.milliseconds, each.value, each.step);
    for (const auto& [name, text] : lines) {
      const std::string file = run_file("metrics/" + name);
      make_folders_for(file);
      AppendFile(file).write(text);
    }
  }
  void upload(const std::string& file, const std::string& name) override {
    const std::string target = run_file("artifacts/" + name);
    make_folders_for(target);
    std::error_code code;
    fs::copy_file(file, target, fs::copy_options::overwrite_existing, code);
    if (code) throw Error(concat("cannot copy '", file, "' to '", target, "': ", code.message()), ErrorKind::io);
  }
  void end(RunStatus status) override { write_meta(number_of(status), std::to_string(milliseconds_since_1970())); }

 private:
  std::string run_file(const std::string& name) const { return concat(root_, '/', experiment_, '/', id_, '/', name); }

  std::optional<std::string> find_experiment(const std::string& name) const {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(root_, ignored)) {
      const std::string meta = entry.path().string() + "/meta.yaml";
      if (fs::exists(meta, ignored) && member_of(read_yaml(read_text_file(meta)).root, "name") == name)
        return entry.path().filename().string();
    }
    return std::nullopt;
  }

  std::string make_experiment(const std::string& name) const {
    // MLflow's own first one has this number.
    const std::string id = name == "Default" ? "0" : "1" + random_digits("0123456789", 17);
    const std::int64_t now = milliseconds_since_1970();
    write_file(concat(root_, '/', id, "/meta.yaml"),
               fmt::format("artifact_location: {}\ncreation_time: {}\nexperiment_id: '{}'\nlast_update_time: {}\n"
                           "lifecycle_stage: active\nname: {}\n",
                           text_to_yaml(concat("file://", root_, '/', id)), now, id, now, text_to_yaml(name)));
    return id;
  }

  void write_meta(int status, const std::string& end) const {
    const std::string artifacts = run_file("artifacts");
    write_file(run_file("meta.yaml"),
               fmt::format("artifact_uri: {}\nend_time: {}\nentry_point_name: ''\nexperiment_id: '{}'\n"
                           "lifecycle_stage: active\nrun_id: {}\nrun_name: {}\nrun_uuid: {}\nsource_name: ''\n"
                           "source_type: 4\nsource_version: ''\nstart_time: {}\nstatus: {}\ntags: []\nuser_id: ''\n",
                           text_to_yaml("file://" + artifacts), end, experiment_, id_, text_to_yaml(name_), id_, start_,
                           status));
  }

  // Removes metrics of steps behind this one.
  void take_back(std::int64_t last_step) const {
    std::error_code ignored;
    for (const auto& entry : fs::recursive_directory_iterator(run_file("metrics"), ignored)) {
      if (!entry.is_regular_file()) continue;
      const std::string text = read_text_file(entry.path().string());
      std::string kept;
      for (std::string_view rest = text; !rest.empty();) {
        const std::string_view line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(line.size() + 1, rest.size()));
        std::int64_t step = 0;
        std::from_chars(line.data() + line.rfind(' ') + 1, line.data() + line.size(), step);
        if (step <= last_step) kept += concat(line, '\n');
      }
      if (kept != text) write_text_file(entry.path().string(), kept);
    }
  }

  std::string root_, experiment_, id_, name_;
  std::int64_t start_ = 0;
};

}  // namespace

std::unique_ptr<MlflowStore> mlflow_files(std::string root) { return std::make_unique<MlflowFiles>(std::move(root)); }

}  // namespace keel
