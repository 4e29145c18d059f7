#pragma once
// Checkpoints: folders that hold all a run needs to go on as if it had never stopped.
//
// `model.safetensors` (fp32 weights), `optimizer.safetensors`, and `state.json`: where the run stands, the
// configuration, and the size and XXH3 hash of the other two. A folder appears under its name only when every file
// is on the disk. Random draws and the order of the data are functions of (seed, step), so their state is the step.

#include <cstdint>
#include <string>

#include "keel/dist/parallel/engine.h"

namespace keel {

struct TrainState {
  std::int64_t step = 0;         // of the run, skipped ones included: position of data and random draws
  std::int64_t steps_taken = 0;  // by the optimizer
  std::int64_t tokens = 0;       // trained on
  std::string config;            // YAML of the run that wrote it
};

// Writes the folder in one step; an older one of that name is replaced. A failure is an Error of kind io and leaves
// what was there.
void save_checkpoint(const std::string& path, const Engine& engine, const TrainState& state);

// Reads state.json and checks that the other files are whole. Anything that is missing, cut short or changed is an
// Error that names the file.
TrainState read_checkpoint(const std::string& path);
// Gives the engine the numbers of a checkpoint that read_checkpoint() found whole.
void load_checkpoint(const std::string& path, const TrainState& state, Engine& engine);

// Makes `target` a second name of the checkpoint's weights, in one step (a copy where the file system has no links).
void publish_weights(const std::string& checkpoint, const std::string& target);

}  // namespace keel
