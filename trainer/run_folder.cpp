#include "keel/trainer/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

namespace keel {
namespace {

constexpr std::string_view kPrefix = "step-";

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

std::vector<std::int64_t> RunFolder::checkpoint_steps() const {
  std::vector<std::int64_t> steps;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path_ + "/checkpoints", ignored)) {
    const std::string name = entry.path().filename().string();
    std::int64_t step = 0;
    const char* end = name.data() + name.size();
    if (!name.starts_with(kPrefix)) continue;
    const auto [stopped, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
    if (error == std::errc() && stopped == end) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace keel
