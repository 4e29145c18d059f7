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

// What lies among a run's checkpoints.
std::vector<std::string> entries_of(const std::string& run) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints", ignored))
    found.push_back(entry.path().string());
  return found;
}

bool is_run(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(RunFolder(path).config(), ignored);
}

// The checkpoint that was set aside under this name for another one of its step; empty for another name.
std::string own_name_of(std::string_view path) {
  constexpr std::string_view kSuffix = AtomicFolder::kReplaced;
  if (!path.ends_with(kSuffix)) return {};
  path.remove_suffix(kSuffix.size());
  return RunFolder::step_named(std::string(path)) ? std::string(path) : std::string();
}

}  // namespace

std::string RunFolder::name() const {
  const std::filesystem::path path = std::filesystem::absolute(path_).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

std::string RunFolder::checkpoint(std::int64_t step) const {
  return fmt::format("{}/checkpoints/{}{:08}", path_, kPrefix, step);
}

std::string RunFolder::meant_by(const std::string& path) {
  if (is_run(path)) return path;
  std::filesystem::path folder = std::filesystem::path(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // a slash at the end
  const std::string run = folder.has_parent_path() ? folder.parent_path().string() : ".";
  return folder.filename() == "checkpoints" && is_run(run) ? run : "";
}

std::string RunFolder::around(const std::string& checkpoint) {
  const std::filesystem::path folder = std::filesystem::weakly_canonical(checkpoint).parent_path().parent_path();
  return is_run(folder.string()) ? folder.string() : "";
}

bool RunFolder::holds_run() const {
  std::error_code ignored;
  const bool has_records =
      std::filesystem::exists(metrics(), ignored) && std::filesystem::file_size(metrics(), ignored) > 0;
  return has_records || std::filesystem::exists(model(), ignored) || !entries_of(path_).empty();
}

std::string RunFolder::named_by(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return "";
  std::string name = read_text_file(path);
  if (name.ends_with('\n')) name.pop_back();
  return name.find('/') == std::string::npos && step_named(name) ? name : "";
}

std::string RunFolder::best_by(std::string_view rule) const {
  std::string name;
  for (const char c : rule) name += c == '/' ? "__" : std::string(1, c);
  return concat(best(), '.', name);
}

std::vector<std::pair<std::string, std::string>> RunFolder::all_best() const {
  std::vector<std::pair<std::string, std::string>> all;
  std::vector<std::string> paths = entries_of(path_);
  std::ranges::sort(paths);
  for (const std::string& path : paths) {
    if (path != best() && !path.starts_with(best() + '.')) continue;
    if (const std::string name = named_by(path); !name.empty())
      all.emplace_back(name, path == best() ? "" : path.substr(best().size() + 1));
  }
  return all;
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

std::vector<std::string> RunFolder::set_aside() const {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const std::string& path : entries_of(path_))
    if (const std::string name = own_name_of(path); !name.empty() && !std::filesystem::exists(name, ignored))
      found.push_back(path);
  return found;
}

void RunFolder::restore_checkpoints() const {
  std::error_code ignored;
  for (const std::string& path : set_aside()) std::filesystem::rename(path, own_name_of(path), ignored);
}

void RunFolder::remove_strays() const {
  std::error_code ignored;  // what cannot be removed harms nobody
  for (const std::string& path : entries_of(path_))
    if (!own_name_of(path).empty() || step_named(AtomicFolder::target_of(path)))
      std::filesystem::remove_all(path, ignored);
  for (const std::string& folder : {path_, path_ + "/checkpoints"}) remove_unfinished_files(folder);
  std::filesystem::remove(model() + ".tmp", ignored);  // of keel 0.1.0
}

}  // namespace keel
