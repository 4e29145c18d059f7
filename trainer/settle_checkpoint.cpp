#include "keel/trainer/settle_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "keel/dist/checkpoint/export.h"
#include "keel/runtime/file.h"

namespace keel {
namespace {

void remove_old(const RunFolder& folder, const CheckpointConfig& config, std::int64_t newest) {
  std::vector<std::int64_t> steps = folder.checkpoint_steps();
  // A later one was not usable when this session began, and keeps none from staying.
  steps.erase(std::upper_bound(steps.begin(), steps.end(), newest), steps.end());
  std::erase_if(steps, [&](std::int64_t step) { return config.keep_every.is_due(step); });
  for (const auto& [best, rule] : folder.all_best())
    std::erase_if(steps, [kept = RunFolder::step_named(best)](std::int64_t step) { return kept == step; });
  while (static_cast<std::int64_t>(steps.size()) > config.keep) {
    std::error_code ignored;  // an old checkpoint that cannot be removed harms nobody
    std::filesystem::remove_all(folder.checkpoint(steps.front()), ignored);
    steps.erase(steps.begin());
  }
}

}  // namespace

void settle_checkpoint(const RunFolder& folder, std::int64_t step, const CheckpointConfig& config) {
  const std::string path = folder.checkpoint(step);
  write_text_file(folder.latest(), std::filesystem::path(path).filename().string() + "\n");
  for (const auto& [name, section] : weights_in(read_manifest(path)))
    publish_weights(path, folder.model(name), section);
  remove_old(folder, config, step);
}

}  // namespace keel
