#include "keel/trainer/run_files.h"

#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

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
