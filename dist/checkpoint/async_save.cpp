#include "keel/dist/checkpoint/async_save.h"

#include <exception>
#include <utility>

#include "keel/dist/comm/exchange.h"
#include "keel/runtime/error.h"

namespace keel {

AsyncSave::AsyncSave(Sharded& engine, Communicator& ranks, std::span<const SavedBeside> beside)
    : engine_(engine),
      ranks_(ranks),
      made_for_(static_cast<std::size_t>(ranks.size())),
      number_(number_files(engine, ranks)),
      snapshot_(std::make_shared<Snapshot>(sections_of(engine, number_, beside))) {}

AsyncSave::~AsyncSave() = default;

void AsyncSave::begin(const std::string& path, const Json& state, std::function<void()> on_commit,
                      std::span<const SavedBeside> beside) {
  KEEL_CHECK(!is_under_way(), "'", job_->path(), "' is being saved; poll() or finish() tells when that has ended");
  Json whole = state;
  keep_steps(whole, engine_, beside);
  auto job = std::make_unique<SaveJob>(path, count_ + 1, ranks_, whole, std::move(on_commit));
  ++count_;
  job_ = std::move(job);
  // From here on the others learn of a failure by notes.
  try {
    snapshot_->take(sections_of(engine_, number_, beside), engine_, beside);
    job_->write([snapshot = snapshot_] { return snapshot->sections(); });
  } catch (const std::exception& error) { job_->fail(error.what()); }
}

SaveNote AsyncSave::note() const { return job_ ? job_->note() : SaveNote{}; }

std::optional<SaveResult> AsyncSave::hear(std::span<const SaveNote> notes) {
  if (!is_under_way()) return std::nullopt;
  std::optional<SaveResult> result = job_->hear(notes);
  if (result) job_.reset();
  return result;
}

std::optional<SaveResult> AsyncSave::poll() {
  if (!is_under_way()) return std::nullopt;
  return hear(gather_values(ranks_, note()));
}

SaveResult AsyncSave::finish() {
  KEEL_CHECK(is_under_way(), "no save is under way");
  SaveResult result = job_->finish();
  job_.reset();
  return result;
}

}  // namespace keel
