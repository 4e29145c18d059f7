#pragma once
// Checkpoints that are written while training goes on.
//
// begin() copies what the rank owns and returns; a thread writes the copy (save.h). Where it stands, ranks tell each
// other in notes that they exchange with every step anyway. A loop of one's own calls poll() instead:
//
//   AsyncSave save(engine, ranks);
//   for (step = 1; step <= steps; ++step) {
//     ...                                                       // backward(), step()
//     if (std::optional<SaveResult> result = save.poll()) ...   // it is there, or why not
//     if (step % 100 == 0 && !save.is_under_way()) save.begin(path, {{"step", step}});
//   }
//   if (save.is_under_way()) save.finish();
//
// A save that nobody polls or finishes is never committed.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "keel/dist/checkpoint/save_job.h"

namespace keel {

class AsyncSave {
 public:
  // Makes the memory for the copy. Every rank makes one. Both must outlive this; `ranks` are those of the engine, by a
  // communicator of the processor. `beside`: what is saved beside the engine's numbers; every save has as much of it.
  AsyncSave(Sharded& engine, Communicator& ranks, std::span<const SavedBeside> beside = {});
  // Waits for the thread, though not for a disk that hangs. What is being committed is finished; another save
  // disappears.
  ~AsyncSave();
  AsyncSave(const AsyncSave&) = delete;
  AsyncSave& operator=(const AsyncSave&) = delete;

  // Begins to make the checkpoint `path`, or to replace it. The engine's numbers may change when it returns. `state`,
  // the first rank's, is kept in the manifest; the engine's counts of steps and loss scale join it as "optimizer".
  // `on_commit` is called by a thread of the first rank when the folder has its name; it holds what it uses, as a disk
  // that hangs may keep that thread beyond this. Every rank calls it, between two
  // steps and with no save under way. Where the first rank cannot make the folder: an AgreedError of kind io.
  void begin(const std::string& path, const Json& state, std::function<void()> on_commit = {},
             std::span<const SavedBeside> beside = {});
  // Whether a save was begun whose result has not come yet: the same on all ranks.
  bool is_under_way() const { return job_ != nullptr; }
  // Whether it can go on: not where ranks were lost since this was made (Communicator::losses()). Those that are left
  // make another one then, as soon as they have heard notes of fewer ranks, or in an attempt.
  bool is_of(std::size_t ranks) const { return ranks == made_for_; }

  // What this rank tells the others; and what all have told, in their order. Every rank hears the same notes, in the
  // same order of calls; they may be some steps old. The result comes once, on every rank.
  SaveNote note() const;
  std::optional<SaveResult> hear(std::span<const SaveNote> notes);
  // Exchanges notes and hears them. Every rank calls it. Asks for nothing where no save is under way.
  std::optional<SaveResult> poll();
  // Blocks until the save under way has its result.
  SaveResult finish();

 private:
  Sharded& engine_;
  Communicator& ranks_;
  std::size_t made_for_;  // ranks
  FileNumber number_;
  std::shared_ptr<Snapshot> snapshot_;  // with a thread that may hang
  std::uint32_t count_ = 0;             // of saves that were begun
  std::unique_ptr<SaveJob> job_;
};

}  // namespace keel
