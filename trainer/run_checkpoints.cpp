#include "keel/trainer/run_checkpoints.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"

namespace keel {

void RunCheckpoints::save(const Sharded& engine, Communicator& ranks, const TrainState& state,
                          TrainObserver& observer) {
  const std::string path = folder_.checkpoint(state.step);
  save_checkpoint(path, engine, ranks, state);
  newest_ = state.step;
  together(ranks, [&] {
    if (ranks.rank() == 0) publish_weights(path, folder_.model());
    observer.on_checkpoint({state.step, path});
    if (ranks.rank() == 0) remove_old();
  });
  published_ = state.step;
}

void RunCheckpoints::save_the_last(const Sharded& engine, Communicator& ranks, const TrainState& state,
                                   TrainObserver& observer) {
  if (published_ == state.step) return;
  // A session before may have ended between its last checkpoint and the weights beside it.
  std::error_code differs;
  const std::string path = folder_.checkpoint(state.step);
  const bool is_there =
      resume_ && resume_->state.step == state.step && std::filesystem::equivalent(resume_->path, path, differs);
  // As the first rank sees it: file systems may show others an older state.
  if (gather_values(ranks, is_there ? 1 : 0).front() == 0) return save(engine, ranks, state, observer);
  together(ranks, [&] {
    if (ranks.rank() == 0) publish_weights(path, folder_.model());
  });
}

std::string RunCheckpoints::save_elsewhere(const Sharded& engine, Communicator& ranks, const TrainState& state) const {
  const std::filesystem::path run = std::filesystem::path(folder_.path()).lexically_normal();
  const std::string name =
      concat("keel-", (run.has_filename() ? run : run.parent_path()).filename().string(), "-step-", state.step);
  std::error_code here, temporary;
  for (const std::filesystem::path& place :
       {std::filesystem::current_path(here), std::filesystem::temp_directory_path(temporary)}) {
    const std::string path = broadcast_text(ranks, place.empty() ? "" : (place / name).string());
    if (path.empty()) continue;
    try {
      save_checkpoint(path, engine, ranks, state);
      return path;
    } catch (const Error&) {
      if (!is_thrown_by_all(ranks)) throw;
    }
  }
  return "";
}

void RunCheckpoints::remove_old() const {
  std::vector<std::int64_t> steps = folder_.checkpoint_steps();
  // A later one was not usable when this session began, and keeps none from staying.
  steps.erase(std::upper_bound(steps.begin(), steps.end(), newest_), steps.end());
  while (static_cast<std::int64_t>(steps.size()) > keep_) {
    std::error_code ignored;  // an old checkpoint that cannot be removed harms nobody
    std::filesystem::remove_all(folder_.checkpoint(steps.front()), ignored);
    steps.erase(steps.begin());
  }
}

}  // namespace keel
