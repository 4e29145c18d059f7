#include "keel/trainer/checkpoint_list.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "keel/dist/checkpoint/export.h"
#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/runtime/file.h"
#include "keel/trainer/config.h"
#include "keel/trainer/config_keys.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> paths_in(const RunFolder& run) {
  const std::string folder = fs::path(run.latest()).parent_path().string();
  std::error_code code;
  const fs::directory_iterator readable(folder, code);
  if (code && code != std::errc::no_such_file_or_directory)
    throw Error(concat("cannot read '", folder, "': ", code.message()), ErrorKind::io);
  std::vector<std::string> paths = run.set_aside();
  for (const std::int64_t step : run.checkpoint_steps()) paths.push_back(run.checkpoint(step));
  return paths;
}

// Bytes in a folder, and when the manifest there was written; what cannot be read counts for nothing.
void measure(ListedCheckpoint& checkpoint) {
  std::error_code code;
  for (fs::directory_iterator entry(checkpoint.path, code), end; !code && entry != end; entry.increment(code)) {
    std::error_code ignored;
    if (const std::uint64_t bytes = entry->file_size(ignored); !ignored) checkpoint.bytes += bytes;
  }
  // The last thing that is written in it.
  struct ::stat found = {};
  if (::stat(concat(checkpoint.path, '/', Manifest::kFile).c_str(), &found) == 0 ||
      ::stat(checkpoint.path.c_str(), &found) == 0)
    checkpoint.written = found.st_mtime;
}

int writers_of(const Manifest& manifest) {
  const std::map<std::string, std::string> models = weights_in(manifest);
  const std::string section = models.empty() ? "" : models.begin()->second;
  std::set<std::uint32_t> files;
  for (const Extent& extent : manifest.extents)
    if (manifest.tensors[extent.tensor].section == section) files.insert(extent.file);
  return static_cast<int>(files.size());
}

struct Opened {
  ListedCheckpoint listed;
  std::optional<Manifest> manifest;
};

Opened open(const std::string& path, const std::shared_ptr<const ConfigKeys>& keys) {
  Opened opened;
  opened.listed.path = path;
  fs::path name(path);
  opened.listed.step =
      RunFolder::step_named(path).value_or(RunFolder::step_named(name.replace_extension()).value_or(0));
  measure(opened.listed);
  try {
    Checkpoint checkpoint = open_checkpoint_of_run(path, keys);
    opened.listed.step = checkpoint.state.step;
    opened.listed.files = static_cast<int>(checkpoint.manifest.files.size());
    opened.listed.ranks = writers_of(checkpoint.manifest);
    opened.listed.unknown = unknown_part(*keys, checkpoint.state.config);
    opened.manifest = std::move(checkpoint.manifest);
  } catch (const Error& error) { opened.listed.damage = error.what(); }
  return opened;
}

void verify_all(std::vector<Opened>& all, const VerifyProgress& progress) {
  std::uint64_t done = 0, total = 0;
  for (const Opened& each : all)
    if (each.manifest) total += ExtentReader(each.listed.path, *each.manifest).bytes_with_hash();
  for (Opened& each : all) {
    if (!each.manifest) continue;
    const ExtentReader reader(each.listed.path, *each.manifest);
    const std::uint64_t before = done;
    try {
      reader.verify(0, 1, [&](std::uint64_t bytes) { progress(done += bytes, total); });
    } catch (const Error& error) { each.listed.damage = error.what(); }
    progress(done = before + reader.bytes_with_hash(), total);
  }
}

void read_latest(const RunFolder& run, CheckpointList& list) {
  std::error_code ignored;
  if (!fs::exists(run.latest(), ignored)) return;
  try {
    list.latest = read_text_file(run.latest());
    if (list.latest.ends_with('\n')) list.latest.pop_back();
  } catch (const Error& error) {
    list.latest_damage = error.what();
    return;
  }
  const auto is_named = [&](const ListedCheckpoint& each) { return fs::path(each.path).filename() == list.latest; };
  if (std::none_of(list.checkpoints.begin(), list.checkpoints.end(), is_named))
    list.latest_damage = concat("'", run.latest(), "' names ", list.latest, ", which is not there");
}

}  // namespace

Checkpoint open_checkpoint_of_run(const std::string& path, const std::shared_ptr<const ConfigKeys>& keys) {
  Checkpoint checkpoint = open_checkpoint(path);
  const std::optional<std::int64_t> named = RunFolder::step_named(path);
  KEEL_CHECK(!named || *named == checkpoint.state.step, "'", path, "' holds step ", checkpoint.state.step,
             ", not the step of its name; give it a name without a step, or its own again");
  const std::string& config = checkpoint.state.config;
  if (!is_of_own_loop(checkpoint) && unknown_part(*keys, config).empty()) parse_config(keys, config, path);
  return checkpoint;
}

Checkpoint find_best_checkpoint(const std::string& path, const std::shared_ptr<const ConfigKeys>& keys) {
  const RunFolder run(run_meant_by(path));
  KEEL_CHECK(!run.path().empty(), "'", path, "' is one checkpoint; leave --best out");
  const std::string name = run.named_by(run.best());
  KEEL_CHECK(!name.empty(), "the run in '", path,
             "' names no best checkpoint; checkpoint.best says which value of evaluations is to be the best");
  return open_checkpoint_of_run(run.checkpoint_called(name), keys);
}

std::string section_of_weights(const Checkpoint& checkpoint, const std::string& average, const std::string& model) {
  std::string names;
  const std::map<std::string, std::string> models = weights_in(checkpoint.manifest);
  for (const auto& [name, section] : models)
    if (!name.empty()) names += concat(names.empty() ? "" : ", ", name);
  const auto found = models.find(model);
  if (found == models.end())
    throw Error(names.empty()
                    ? concat("'", checkpoint.path, "' has one model, without a name, and none called '", model, "'")
                    : concat("'", checkpoint.path, "' has the models ", names, "; name one of them (--stack NAME)"));
  if (average.empty()) return found->second;
  KEEL_CHECK(model.empty(), "'", checkpoint.path, "' has several models, and averages of weights are of runs with one");
  std::string section = concat("callback.", average);
  KEEL_CHECK(!checkpoint.manifest.tensors_of(section).empty(), "'", checkpoint.path, "' has no average of this kind; ",
             average == "ema" ? "ema.decay" : "swa.start", " asks for one");
  return section;
}

std::optional<Checkpoint> newest_checkpoint(const RunFolder& folder,
                                            const std::function<void(std::string_view)>& complain, std::int64_t below,
                                            const std::shared_ptr<const ConfigKeys>& keys) {
  std::vector<std::int64_t> steps = folder.checkpoint_steps();
  std::erase_if(steps, [&](std::int64_t step) { return step >= below; });
  std::reverse(steps.begin(), steps.end());
  for (const std::int64_t step : steps) {
    try {
      return open_checkpoint_of_run(folder.checkpoint(step), keys);
    } catch (const Error& error) {
      complain(concat("the checkpoint of step ", step, " is not usable: ", error.what()));
    }
  }
  return std::nullopt;
}

const ListedCheckpoint* CheckpointList::next() const {
  const auto found = std::find_if(checkpoints.rbegin(), checkpoints.rend(),
                                  [](const ListedCheckpoint& each) { return each.damage.empty(); });
  return found == checkpoints.rend() ? nullptr : &*found;
}

bool CheckpointList::is_damaged() const {
  return !latest_damage.empty() || std::any_of(checkpoints.begin(), checkpoints.end(),
                                               [](const ListedCheckpoint& each) { return !each.damage.empty(); });
}

std::string run_meant_by(const std::string& path) {
  std::error_code code;
  const bool is_there = fs::exists(path, code);
  // Whoever may not enter a folder sees nothing in it.
  const bool is_open = !is_there || !fs::is_directory(path, code) || fs::exists(concat(path, "/."), code);
  if (code || !is_open) throw Error(concat("cannot read '", path, "': ", code.message()), ErrorKind::io);
  KEEL_CHECK(is_there, "there is no '", path, "'; name the folder of a run, or a checkpoint");
  if (std::string run = RunFolder::meant_by(path); !run.empty()) return run;
  if (is_checkpoint(path) || RunFolder::step_named(path)) return "";
  KEEL_CHECK(fs::is_directory(path, code), "'", path, "' is a file; name the folder of a run, or a checkpoint");
  KEEL_CHECK(RunFolder(path).holds_run(), "'", path,
             "' is neither the folder of a run nor a checkpoint: nothing that a run writes is there");
  return path;
}

Checkpoint find_checkpoint(const std::string& path, std::optional<std::int64_t> step,
                           const std::function<void(std::string_view)>& complain, std::int64_t below,
                           const std::shared_ptr<const ConfigKeys>& keys) {
  const RunFolder run(run_meant_by(path));
  if (run.path().empty()) {
    KEEL_CHECK(!step, "'", path, "' is one checkpoint; leave --step out");
    return open_checkpoint_of_run(path, keys);
  }
  if (!step) {
    std::optional<Checkpoint> newest = newest_checkpoint(run, complain, below, keys);
    KEEL_CHECK(newest || run.checkpoint_steps().empty(), "no checkpoint in '", path, "' is whole");
    KEEL_CHECK(newest, "the run in '", path, "' has no checkpoint yet");
    return *std::move(newest);
  }
  std::string steps;
  for (const std::int64_t each : run.checkpoint_steps()) steps += concat(steps.empty() ? "" : ", ", each);
  std::error_code ignored;
  KEEL_CHECK(fs::exists(run.checkpoint(*step), ignored), "the run in '", path, "' has no checkpoint of step ", *step,
             "; it has ", steps.empty() ? "none yet" : steps);
  return open_checkpoint_of_run(run.checkpoint(*step), keys);
}

CheckpointList list_checkpoints(const std::string& path, const VerifyProgress& verify,
                                const std::shared_ptr<const ConfigKeys>& keys) {
  const RunFolder run(run_meant_by(path));
  CheckpointList list;
  list.is_of_run = !run.path().empty();
  std::vector<Opened> all;
  for (const std::string& each : list.is_of_run ? paths_in(run) : std::vector<std::string>{path})
    all.push_back(open(each, keys));
  std::stable_sort(all.begin(), all.end(),
                   [](const Opened& a, const Opened& b) { return a.listed.step < b.listed.step; });
  if (verify) verify_all(all, verify);
  std::error_code ignored;
  for (Opened& each : all)
    if (fs::exists(each.listed.path, ignored)) list.checkpoints.push_back(std::move(each.listed));
  if (list.is_of_run) {
    read_latest(run, list);
    list.best = RunFolder::named_by(run.best());
    list.all_best = run.all_best();
  }
  return list;
}

}  // namespace keel
