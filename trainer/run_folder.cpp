#include "keel/trainer/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "keel/runtime/file.h"

namespace keel {
namespace {

constexpr std::string_view kPrefix = "step-";

// The folders of checkpoints whose names have `suffix` behind them, without it.
std::vector<std::filesystem::path> checkpoints_with(const std::string& run, std::string_view suffix) {
  std::vector<std::filesystem::path> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints", ignored)) {
    std::string path = entry.path().string();
    if (!path.ends_with(suffix)) continue;
    path.resize(path.size() - suffix.size());
    if (RunFolder::step_named(path)) found.emplace_back(path);
  }
  return found;
}

}  // namespace

std::string RunFolder::checkpoint(std::int64_t step) const {
  return fmt::format("{}/checkpoints/{}{:08}", path_, kPrefix, step);
}

bool RunFolder::holds_run() const {
  std::error_code ignored;
  for (const std::string& file : {config(), metrics(), tokenizer(), model(), path_ + "/checkpoints"})
    if (std::filesystem::exists(file, ignored)) return true;
  return false;
}

std::optional<std::int64_t> RunFolder::step_named(const std::string& checkpoint) {
  std::filesystem::path path(checkpoint);
  if (!path.has_filename()) path = path.parent_path();  // "step-5/"
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stopped, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  return error == std::errc() && stopped == end ? std::optional(step) : std::nullopt;
}

std::vector<std::int64_t> RunFolder::checkpoint_steps() const {
  std::vector<std::int64_t> steps;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path_ + "/checkpoints", ignored))
    if (const auto step = step_named(entry.path().string())) steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

void RunFolder::restore_checkpoints() const {
  std::error_code ignored;
  for (const std::filesystem::path& checkpoint : checkpoints_with(path_, AtomicFolder::kReplaced))
    if (!std::filesystem::exists(checkpoint, ignored))
      std::filesystem::rename(checkpoint.string() + AtomicFolder::kReplaced, checkpoint, ignored);
}

void RunFolder::remove_strays() const {
  std::error_code ignored;  // what cannot be removed harms nobody
  for (const char* suffix : {AtomicFolder::kReplaced, AtomicFolder::kUnfinished})
    for (const std::filesystem::path& checkpoint : checkpoints_with(path_, suffix))
      std::filesystem::remove_all(checkpoint.string() + suffix, ignored);
  remove_unfinished_files(path_);
  std::filesystem::remove(model() + ".tmp", ignored);  // of keel 0.1.0
}

}  // namespace keel
