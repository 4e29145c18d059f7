#pragma once
// The checkpoints of a run: which there are, which of them are whole, and which one a session goes on from.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/trainer/checkpoint.h"
#include "keel/trainer/config.h"
#include "keel/trainer/run_folder.h"

namespace keel {

// As open_checkpoint(), and its configuration, if it has one, can be read by these keys or is of a task or strategy
// that they do not have, and a step in its name is its own.
Checkpoint open_checkpoint_of_run(const std::string& path, const std::shared_ptr<const ConfigKeys>& keys = keel_keys());

// The newest one of fewer steps than `below` that can be opened, if any. What is wrong with later ones is told to
// `complain`.
std::optional<Checkpoint> newest_checkpoint(const RunFolder& folder,
                                            const std::function<void(std::string_view)>& complain,
                                            std::int64_t below = std::numeric_limits<std::int64_t>::max(),
                                            const std::shared_ptr<const ConfigKeys>& keys = keel_keys());

// What a path means: one checkpoint, or of a run's folder the one of this step; without a step, its newest of fewer
// steps than `below` that can be opened. An Error where there is none, and where a step is given for one checkpoint.
Checkpoint find_checkpoint(const std::string& path, std::optional<std::int64_t> step,
                           const std::function<void(std::string_view)>& complain,
                           std::int64_t below = std::numeric_limits<std::int64_t>::max(),
                           const std::shared_ptr<const ConfigKeys>& keys = keel_keys());

// The one that checkpoint.best has found best in a run's folder; an Error where none is named.
Checkpoint find_best_checkpoint(const std::string& path, const std::shared_ptr<const ConfigKeys>& keys = keel_keys());

// Where a checkpoint has the weights, or their average of a kind ("ema", "swa"; empty: the weights themselves), of the
// model of this name (empty: the only one). An Error where it has none of that kind, or no such model.
std::string section_of_weights(const Checkpoint& checkpoint, const std::string& average, const std::string& model);

// The folder of the run that a path means; empty: it means one checkpoint. An Error where it is neither, or cannot be
// looked into.
std::string run_meant_by(const std::string& path);

struct ListedCheckpoint {
  std::string path;
  std::int64_t step = 0;     // as its name says, or else its state
  std::uint64_t bytes = 0;   // of all that lies in its folder
  int files = 0;             // of numbers
  int ranks = 0;             // that have written a file of weights
  std::int64_t written = 0;  // seconds since 1970
  std::string damage;        // why it cannot be gone on from; empty: it can
  std::string unknown;       // "the task 'fit'", which only the program that trained it has, and goes on with
};

struct CheckpointList {
  bool is_of_run = true;                      // and not of one checkpoint
  std::vector<ListedCheckpoint> checkpoints;  // by step
  // The name that the file `latest` says; empty: there is none. And what is wrong with that.
  std::string latest, latest_damage;
  std::string best;  // the name that the file `best` says; empty: there is none
  std::vector<std::pair<std::string, std::string>> all_best;  // see RunFolder::all_best()

  // What a session with resume=auto goes on from, where the configuration fits; null: nothing is whole.
  const ListedCheckpoint* next() const;
  bool is_damaged() const;
};

// How much of `total` bytes have been compared with their hashes.
using VerifyProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Of a run's folder, or of one checkpoint's. Reads manifests and sizes, and where `verify` is given every byte. A
// folder that is neither, or cannot be read, is an Error. A run may go on meanwhile: what it removes is left out.
CheckpointList list_checkpoints(const std::string& path, const VerifyProgress& verify = {},
                                const std::shared_ptr<const ConfigKeys>& keys = keel_keys());

}  // namespace keel
