#include "keel/trainer/run_memory.h"

#include <filesystem>
#include <system_error>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/file.h"
#include "keel/trainer/checkpoint_list.h"
#include "keel/trainer/config_keys.h"

namespace keel {
namespace {

// The session whose copies count, as the first rank finds it, on every rank; empty: none.
std::string noted_session(const RunFolder& folder, Communicator& ranks) {
  std::string session;
  std::error_code ignored;
  if (ranks.rank() == 0 && std::filesystem::exists(folder.memory_session(), ignored)) {
    try {
      session = read_text_file(folder.memory_session());
      if (session.ends_with('\n')) session.pop_back();
    } catch (const Error&) {}  // whoever may not read it may not go on from it
  }
  session = broadcast_text(ranks, session);
  return MemoryFolder::is_session(session) ? session : "";
}

// Where this rank's host has the copies of a session.
MemoryFolder copies_of(const RunFolder& folder, const std::string& session, Communicator& ranks) {
  std::error_code code;  // the folder may not be there yet
  const std::filesystem::path path = std::filesystem::absolute(folder.path(), code);
  std::string run = std::filesystem::weakly_canonical(path, code).string();
  if (code) run = path.string();
  return {MemoryFolder::root_of_host(), broadcast_text(ranks, run), session};
}

}  // namespace

std::optional<Promotion> promote_newest_copy(const RunFolder& folder, const std::shared_ptr<const ConfigKeys>& keys,
                                             TrainObserver& observer, Communicator& ranks, std::int64_t below,
                                             std::int64_t copies_below) {
  const std::string session = noted_session(folder, ranks);
  if (session.empty()) return std::nullopt;
  std::int64_t above = -1;
  together(ranks, [&] {
    if (ranks.rank() != 0) return;
    const auto newest = newest_checkpoint(
        folder, [](std::string_view) {}, below, keys);
    if (!newest) return;
    check_is_known(*keys, newest->state.config, newest->path);
    above = newest->state.step;
  });
  above = gather_values(ranks, above).front();
  const std::optional<Promotion> made = promote_copy(
      copies_of(folder, session, ranks), ranks, above, copies_below,
      [&](std::int64_t step) { return folder.checkpoint(step); },
      [&](std::string_view complaint) { observer.on_message(LogLevel::warning, complaint); });
  if (!made) return made;
  together(ranks, [&] {
    if (ranks.rank() == 0)
      write_text_file(folder.latest(), std::filesystem::path(made->path).filename().string() + "\n");
  });
  return made;
}

RunMemory::RunMemory(const RunFolder& folder, const CheckpointConfig& config, const Sharded& engine,
                     Communicator& ranks, TrainObserver& observer)
    : folder_(folder), every_(config.memory_every), engine_(engine), ranks_(ranks), observer_(observer) {
  if (!every_.is_none()) copies_ = make_copies();
}

std::unique_ptr<MemoryCopies> RunMemory::make_copies() const {
  const std::string session = broadcast_text(ranks_, MemoryFolder::new_session());
  return std::make_unique<MemoryCopies>(engine_, ranks_, copies_of(folder_, session, ranks_));
}

bool RunMemory::are_of_all() const { return std::ssize(copies_->hosts().of) == ranks_.size(); }

void RunMemory::begin() {
  const std::string before = noted_session(folder_, ranks_);
  if (!copies_ && before.empty()) return;
  note();
  const MemoryFolder folder = copies_ ? copies_->folder() : copies_of(folder_, before, ranks_);
  const MemoryHosts hosts = copies_ ? copies_->hosts() : meet_in_memory(ranks_, folder.root());
  if (hosts.is_first(ranks_.rank())) {
    folder.remove_other_sessions();
    if (!copies_) folder.remove();
  }
  if (copies_ && hosts.count() == 1 && ranks_.rank() == 0)
    observer_.on_message(LogLevel::info,
                         concat("checkpoint.memory_every: all ranks are on one host, ", hosts.names.front(),
                                ", so what is copied into its memory survives processes, but not the host"));
}

void RunMemory::note() {
  noted_ = copies_ ? copies_->folder().session() : "";
  together(ranks_, [&] {
    if (ranks_.rank() != 0) return;
    std::error_code ignored;
    if (copies_) write_text_file(folder_.memory_session(), noted_ + "\n");
    else std::filesystem::remove(folder_.memory_session(), ignored);
  });
}

void RunMemory::copy(const TrainState& state, std::span<const SavedBeside> beside) {
  if (!are_of_all()) copies_ = make_copies();
  const std::string failure = copies_->take(state.step, json_of(state), beside);
  if (failure.empty() && noted_ != copies_->folder().session()) {
    note();
    if (copies_->hosts().is_first(ranks_.rank())) copies_->folder().remove_other_sessions();
  }
  const bool had_failed = std::exchange(has_failed_, !failure.empty());
  if (!failure.empty() && !had_failed)
    observer_.on_message(LogLevel::error, concat("no copy of step ", state.step, " in the memory of hosts: ", failure,
                                                 "; training goes on, and this is told once"));
  if (failure.empty() && had_failed)
    observer_.on_message(LogLevel::info, concat("copied step ", state.step, " into the memory of hosts again"));
}

void RunMemory::end() {
  if (!copies_) return;
  if (!are_of_all()) copies_ = make_copies();
  if (copies_->hosts().is_first(ranks_.rank())) copies_->folder().remove_other_sessions();
  copies_->remove();
  std::error_code ignored;
  if (ranks_.rank() == 0) std::filesystem::remove(folder_.memory_session(), ignored);
}

}  // namespace keel
