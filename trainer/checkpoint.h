#pragma once
// Checkpoints: folders that hold all a run needs to go on as if it had never stopped.
//
// A rank that has all writes `model.safetensors` (fp32 weights) and `optimizer.safetensors`. Ranks that shard them
// write one file each, such as `model-2-of-4.safetensors`, with the parts that the rank owns (keel/nn/tensor_parts.h).
// Where gradients are compressed, each rank writes its residuals, such as `compression-2-of-4.safetensors`.
// `state.json` says where the run stands, and holds the configuration, the size and XXH3 hash of the other files and,
// last, a hash of itself.
//
// A folder appears under its name only when every file is on the disk. Any number of ranks may go on from it. Random
// draws and the order of the data are functions of (seed, step), so their state is the step.

#include <cstdint>
#include <string>
#include <vector>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/trainer/time_spent.h"

namespace keel {

struct TrainState {
  std::int64_t step = 0;                    // of the run, skipped ones included: position of data and random draws
  std::int64_t tokens = 0;                  // trained on
  StepState optimizer;                      // counts of steps, loss scale
  TimeSpent time;                           // of the run's time_limit; `steps` are the optimizer's
  std::string data;                         // fingerprint of what was trained on; empty: unknown
  std::string config;                       // YAML of the run that wrote it
  std::vector<std::string> weights, state;  // names of the files with the weights, and with the optimizer's state
  std::vector<std::string> compression;     // by rank; none where gradients were not compressed
};

// Writes the folder in one step; an older one of that name is replaced. Every rank calls it; the folder must be one
// that all of them see. A failure on any rank is an AgreedError of kind io, and leaves what was there.
void save_checkpoint(const std::string& path, const Sharded& engine, Communicator& ranks, const TrainState& state);

// Reads state.json and checks that it and the other files are whole. Anything that is missing, cut short or changed is
// an Error that names the file. Checkpoints of keel 0.1.0, whose state.json has no hash, are read as well.
TrainState read_checkpoint(const std::string& path);
// Reads and checks state.json alone.
TrainState read_state(const std::string& path);
// An Error where the numbers are not those of the engine's model and optimizer. For each rank by itself.
void check_checkpoint(const std::string& path, const TrainState& state, const Sharded& engine);
// Gives the engine the numbers of a checkpoint that read_checkpoint() found whole. Every rank calls it.
void load_checkpoint(const std::string& path, const TrainState& state, Sharded& engine);

// Makes `target` a second name of the checkpoint's weights, in one step (a copy where the file system has no links, or
// where they are in several files).
void publish_weights(const std::string& checkpoint, const std::string& target);

}  // namespace keel
