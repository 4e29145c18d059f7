#pragma once
// The checkpoints that one session of a run makes, and the weights beside them.

#include <cstdint>
#include <optional>

#include "keel/trainer/progress.h"
#include "keel/trainer/resume.h"

namespace keel {

class RunCheckpoints {
 public:
  // `keep`: how many stay. `resume`: the checkpoint that the session begins with. Both outlive this.
  RunCheckpoints(const RunFolder& folder, std::int64_t keep, const std::optional<Resume>& resume)
      : folder_(folder), keep_(keep), resume_(resume), newest_(resume ? resume->state.step : 0) {}

  // Step of the newest one.
  std::int64_t newest() const { return newest_; }
  // Makes the checkpoint of state.step, publishes its weights, removes old ones and tells the observer. Every rank
  // calls it; errors are those of save_checkpoint().
  void save(const Sharded& engine, Communicator& ranks, const TrainState& state, TrainObserver& observer);
  // The same where the folder does not have that checkpoint and its weights already.
  void save_the_last(const Sharded& engine, Communicator& ranks, const TrainState& state, TrainObserver& observer);
  // None that this session has made is there any more.
  void forget() { newest_ = published_ = -1; }
  // Where the folder takes no checkpoint: makes one in the folder that the program was started in, or else in the
  // system's for temporary files, and returns its path; empty where neither takes it. Every rank calls it.
  std::string save_elsewhere(const Sharded& engine, Communicator& ranks, const TrainState& state) const;

 private:
  void remove_old() const;

  const RunFolder& folder_;
  std::int64_t keep_;
  const std::optional<Resume>& resume_;
  std::int64_t newest_;
  std::int64_t published_ = -1;  // step of the weights beside the checkpoints; -1: not of this session
};

}  // namespace keel
