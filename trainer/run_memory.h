#pragma once
// The copies of a run's newest state in the memory of its hosts (checkpoint.memory_every).

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "keel/dist/checkpoint/memory_copies.h"
#include "keel/dist/checkpoint/memory_promotion.h"
#include "keel/trainer/checkpoint.h"
#include "keel/trainer/config.h"
#include "keel/trainer/progress.h"
#include "keel/trainer/run_folder.h"

namespace keel {

// Makes a checkpoint in the run's folder of the newest copy that the run's last session has left in memory, if one is
// whole, of a step below `copies_below`, and newer than what can be opened of the checkpoints below `below`, whose
// configurations are of these keys. What is wrong with a copy is told to the observer of the first rank. Every rank
// calls it.
std::optional<Promotion> promote_newest_copy(const RunFolder& folder, const std::shared_ptr<const ConfigKeys>& keys,
                                             TrainObserver& observer, Communicator& ranks, std::int64_t below,
                                             std::int64_t copies_below);

// What one session does with them.
class RunMemory {
 public:
  // All outlive this. Every rank makes one.
  RunMemory(const RunFolder& folder, const CheckpointConfig& config, const Sharded& engine, Communicator& ranks,
            TrainObserver& observer);

  // For the session that has the run's folder, once that is there and what it goes on from is loaded: from here on the
  // copies of sessions before count for nothing, and go. Every rank calls it.
  void begin();
  // Notes again whose copies count, in a folder that was made again. Every rank calls it.
  void note();
  bool is_due(std::int64_t step) const { return every_.is_due(step); }
  // Copies the state of state.step. A failure is told to the observer, once until a copy is made again. Where ranks
  // were lost, those that are left are a new session, with other partners. Every rank calls it, between two steps, in
  // an attempt.
  void copy(const TrainState& state, std::span<const SavedBeside> beside);
  // Removes the copies: the disk has all that is in them, or nothing is to go on from them. Every rank calls it.
  void end();

 private:
  std::unique_ptr<MemoryCopies> make_copies() const;
  bool are_of_all() const;

  const RunFolder& folder_;
  Length every_;
  const Sharded& engine_;
  Communicator& ranks_;
  TrainObserver& observer_;
  std::unique_ptr<MemoryCopies> copies_;  // null: none are made
  std::string noted_;                     // the session whose copies count
  bool has_failed_ = false;
};

}  // namespace keel
