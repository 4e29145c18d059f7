#include "keel/trainer/run_files.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>

#include "keel/runtime/file.h"

namespace keel {
namespace {

void make_folders(const std::string& path) {
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (code) throw Error(concat("cannot make the folder '", path, "': ", code.message()), ErrorKind::io);
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

void remove_file(const std::string& path) {
  std::error_code code;
  std::filesystem::remove(path, code);
  if (code) throw Error(concat("cannot remove '", path, "': ", code.message()), ErrorKind::io);
}

// Whether a record is the one that another rank has written: ranks measure times and memory of their own, and may hear
// of a lost group in steps that are neighbours.
bool is_same(const Json& written, std::int64_t step, const Logged& first) {
  if (!written.contains(first.name)) return false;
  if (first.name != kDroppedGroup) return written.at("step").integer() == step;
  return written.at(first.name).integer() == std::get<std::int64_t>(first.value);
}

}  // namespace

void RunFiles::take() {
  std::error_code ignored;
  if (lock_ || !std::filesystem::is_directory(folder_.path(), ignored)) return;
  lock_.emplace(folder_.lock());
  if (lock_->state() == FileLock::State::taken) {
    const std::string holder = lock_->holder();
    lock_.reset();
    throw Error(concat("'", folder_.path(), "' is in use by another run, ", holder,
                       "; wait for its end, or give this run another folder (run=OTHER)"));
  }
  if (lock_->state() == FileLock::State::held) folder_.restore_checkpoints();
  else
    observer_.on_message(LogLevel::warning, concat("the file system of '", folder_.path(),
                                                   "' has no locks; start no second run in this folder"));
}

void RunFiles::take_over() {
  constexpr int kTries = 100;
  for (int tries = 1;; ++tries) {
    try {
      return take();
    } catch (const Error&) {
      if (tries == kTries) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

void RunFiles::begin(std::string config, std::vector<std::pair<std::string, std::string>> files,
                     std::optional<std::int64_t> step) {
  const bool was_there = lock_.has_value();
  make_folders(folder_.path());
  take();
  // Another session may have been quicker.
  KEEL_CHECK(was_there || !is_there(folder_.config()), "'", folder_.path(),
             "' holds a run by now; resume=auto goes on with it, run=OTHER leaves it alone");
  if (lock_->state() == FileLock::State::held) folder_.remove_strays();
  config_ = std::move(config);
  task_files_ = std::move(files);
  if (is_there(folder_.config()))
    for (const auto& [name, text] : task_files_)
      if (text.empty()) remove_file(folder_.file(name));
  write_description();
  metrics_.emplace(folder_.metrics(), step.value_or(0));
}

void RunFiles::write_description() const {
  for (const char* name : {"/checkpoints", "/logs"}) make_folders(folder_.path() + name);
  write_text_file(folder_.config(), config_);
  for (const auto& [name, text] : task_files_)
    if (!text.empty()) write_text_file(folder_.file(name), text);
}

void RunFiles::write(std::int64_t step, std::span<const Logged> metrics, RecordKind kind) {
  was_made_again_ = keep(step);
  metrics_->write(step, metrics);
  observer_.on_record(step, kind, metrics);
}

void RunFiles::tell(std::int64_t step, std::span<const Logged> metrics, RecordKind kind) {
  if (has_begun()) write(step, metrics, kind);
  else if (keeps_records_) keep_record({step, {metrics.begin(), metrics.end()}, kind});
}

void RunFiles::keep_record(Kept record) {
  kept_.push_back(std::move(record));
  const std::int64_t newest = kept_.back().step;
  std::int64_t before = -1;
  for (const Kept& each : kept_)
    if (each.step < newest) before = std::max(before, each.step);
  std::erase_if(kept_, [&](const Kept& each) { return each.step < before; });
}

void RunFiles::write_kept() {
  const std::vector<Json> there = read_metrics(folder_.metrics());
  for (const Kept& each : std::exchange(kept_, {})) {
    const auto is_it = [&](const Json& written) { return is_same(written, each.step, each.values.front()); };
    if (std::ranges::none_of(there, is_it)) write(each.step, each.values, each.kind);
  }
}

bool RunFiles::keep(std::int64_t step) {
  if (lock_ && lock_->is_in_place() && is_there(folder_.metrics()) && is_there(folder_.path() + "/checkpoints"))
    return std::exchange(was_made_again_, false);
  constexpr int kTries = 10;  // while the one who removes it is at it
  for (int tries = 1;; ++tries) {
    try {
      make_again(step);
      break;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::io || tries == kTries) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  observer_.on_message(LogLevel::warning,
                       concat("'", folder_.path(), "' was removed while this run wrote into it; it is made again"));
  was_made_again_ = false;
  return true;
}

void RunFiles::make_again(std::int64_t step) {
  if (!lock_ || !lock_->is_in_place()) {
    lock_.reset();
    make_folders(folder_.path());
    take();
    if (is_there(folder_.config()) && read_text_file(folder_.config()) != config_) {
      lock_.reset();
      throw Error(concat("'", folder_.path(), "' was removed while this run wrote into it, and holds another run now"));
    }
  }
  write_description();
  metrics_.emplace(folder_.metrics(), step);
}

}  // namespace keel
