#pragma once
// The checkpoints that one session of a run makes, and the weights beside them.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "keel/dist/checkpoint/async_save.h"
#include "keel/trainer/progress.h"
#include "keel/trainer/resume.h"
#include "keel/trainer/run_callbacks.h"
#include "keel/trainer/run_memory.h"

namespace keel {

class RunCheckpoints {
 public:
  // All outlive this. `begun`: the checkpoint that the session goes on from, if any. What `callbacks` keep is saved,
  // too, and they are told of checkpoints. `others`: further engines that are trained (TaskStacks::others()).
  RunCheckpoints(const RunFolder& folder, const CheckpointConfig& config, Sharded& engine, Communicator& ranks,
                 TrainObserver& observer, RunCallbacks& callbacks, const std::optional<Checkpoint>& begun,
                 std::vector<SavedBeside> others = {});

  // Once the run's folder is there, and what callbacks keep.
  void begin();
  // Whether a checkpoint is due after a step: by the steps, or as `asked` says.
  bool is_due(std::int64_t step, bool asked) const;
  // Whether the first rank's clock says that one is due.
  bool asks() const;
  // Step of the newest one that is there.
  std::int64_t newest() const { return newest_; }

  // Makes the checkpoint of state.step, or begins to where the configuration says so; then its result is told later.
  // Every rank calls it. A failure is an AgreedError of kind io.
  void save(const TrainState& state);
  // For a run in good order: a failure is told to the observer.
  void try_to_save(const TrainState& state);
  // What this rank tells the others with a step, and what all have told.
  SaveNote note() const { return background_ ? background_->note() : SaveNote{}; }
  void hear(std::span<const SaveNote> notes);
  // Waits for the save under way, if any.
  void finish();

  // Whether a copy in the memory of hosts is due after a step; and makes it, where no checkpoint of that step is there.
  bool is_copy_due(std::int64_t step) const { return memory_.is_due(step); }
  void copy(const TrainState& state) {
    if (newest_ != state.step) memory_.copy(state, beside());
  }
  // Removes the copies: nothing is to go on from them.
  void drop_copies() { memory_.end(); }

  // For the end of a session: makes the checkpoint of state.step, and its weights, where they are not there already.
  void save_the_last(const TrainState& state);
  // None that this session has made is there any more, in a folder that was made again.
  void forget();
  // The same after a failure. Where the folder takes no checkpoint, it is made in the folder that the program was
  // started in, or else in the system's for temporary files, and the observer is told; where neither takes it, the
  // Error of the first is thrown.
  // `prepare` comes before the first.
  void save_somewhere(const TrainState& state, const std::function<void()>& prepare);

 private:
  std::vector<SavedBeside> beside() const;
  void save_at_once(const TrainState& state);
  std::string save_elsewhere(const TrainState& state) const;
  void take(const SaveResult& result);
  // Of so many ranks that are left: what they were writing with others that were lost comes to nothing, and is made
  // again.
  void leave_lost(std::size_t ranks);
  // Lets all in the folder go by a checkpoint: its name, the weights beside it, those that are to be kept.
  // What follows a commit: the name of the newest one, the weights beside the checkpoints, and old ones that go.
  std::function<void()> settling(std::int64_t step) const;

  const RunFolder& folder_;
  const CheckpointConfig& config_;
  Sharded& engine_;
  Communicator& ranks_;
  TrainObserver& observer_;
  RunCallbacks& callbacks_;
  std::vector<SavedBeside> others_;
  const std::optional<Checkpoint>& begun_;
  std::unique_ptr<AsyncSave> background_;
  RunMemory memory_;
  std::int64_t newest_;
  std::int64_t saving_ = -1;   // step of the save under way
  bool is_due_again_ = false;  // as ranks were lost that were writing one
  std::int64_t made_ = -1;     // step of the newest one of this session
  // Step of the one of this session that all in the folder goes by, for the first rank.
  std::shared_ptr<std::atomic<std::int64_t>> settled_ = std::make_shared<std::atomic<std::int64_t>>(-1);
  double last_ = 0;  // when the latest began, in seconds
};

}  // namespace keel
