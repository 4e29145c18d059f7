#pragma once
// Checkpoints of runs: folders that hold all a run needs to go on as if it had never stopped.
//
// keel/dist/checkpoint/ writes and reads the numbers; the state of its manifest says here where the run stands, and
// holds its configuration. Any number of ranks may go on. Random draws and the order of the data are functions of
// (seed, step), so their state is the step.

#include <cstdint>
#include <map>
#include <string>

#include "keel/dist/checkpoint/manifest.h"
#include "keel/dist/checkpoint/save.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/trainer/time_spent.h"

namespace keel {

struct TrainState {
  std::int64_t step = 0;         // of the run, skipped ones included: position of data and random draws
  std::int64_t tokens = 0;       // trained on
  StepState optimizer;           // counts of steps, loss scale; the engine's own are saved
  TimeSpent time;                // of the run's time_limit; `steps` are the optimizer's
  std::string data;              // fingerprint of what was trained on; empty: unknown
  std::string config;            // YAML of the run that wrote it; empty: a loop of one's own (keel/trainer/own_run.h)
  double rate_factor = 1;        // on the learning rates, as a callback has set it
  bool owes_evaluation = false;  // one was due after the step, and is left to who goes on: a stop waits for none
  Json callbacks = Json::object();                     // what they keep, by name
  std::map<std::string, std::string> frozen = {};      // fingerprints of frozen models, by name
  std::map<std::string, std::string> validation = {};  // of validation sets, likewise; one that is not there: unknown
};

// What the manifest keeps of it.
Json json_of(const TrainState& state);

// An opened checkpoint.
struct Checkpoint {
  std::string path;
  Manifest manifest;
  TrainState state;
  std::string hosts = {};  // out of whose memory it was made (keel/trainer/run_memory.h); empty: it was on the disk
};

// Whether a loop of one's own has made it, which has no configuration.
inline bool is_of_own_loop(const Checkpoint& checkpoint) { return checkpoint.state.config.empty(); }
// An Error for one of those: the program that made it goes on from it.
void check_has_configuration(const Checkpoint& checkpoint);

// Reads the manifest and what it says of the run. Whatever is missing, cut short, changed or malformed is an Error that
// names the file; the numbers are not read.
Checkpoint open_checkpoint(const std::string& path);
// The first rank's, on every rank; nothing where its path is empty.
Checkpoint broadcast_checkpoint(Checkpoint checkpoint, Communicator& ranks);

}  // namespace keel
