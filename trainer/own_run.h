#pragma once
// The folder of a loop of one's own (keel/trainer/own_loop.h): records, trackers, checkpoints that are written beside
// the training, and where the loop goes on.
//
//   runs/mine/metrics.jsonl       a record a line
//   runs/mine/checkpoints/        as those of `keel train`: any number of ranks, in any stage, goes on
//   runs/mine/model.safetensors   the weights of the newest one
//   runs/mine/config.yaml         the settings that the loop names
//
// `keel checkpoints`, `keel get` and `keel plot` read such a folder.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/dist/parallel/sharded.h"
#include "keel/runtime/context.h"
#include "keel/runtime/json.h"
#include "keel/tasks/metric.h"
#include "keel/trainer/logged.h"

namespace keel {

struct OwnRunOptions {
  // What the loop was started with, by name and text: kept in config.yaml, told to trackers.
  std::vector<std::pair<std::string, std::string>> settings = {};
  std::string trackers = "[]";  // as a configuration's `tracker`: "[csv, {type: tensorboard}]"
  std::int64_t keep = 2;        // newest checkpoints; older ones are removed
  // Warnings, errors that the loop outlives and notes, on the first rank. Without it nobody would hear of a save that
  // fails, so that is an AgreedError of kind io then.
  std::function<void(LogLevel, std::string_view)> tell = {};
};

class OwnRun {
 public:
  // Every rank makes one, of the same folder, which all see. Locks it, and gives the engine the numbers of its newest
  // checkpoint that is whole; records of later steps are dropped. A folder that another process uses, or that holds a
  // run of `keel train`, or checkpoints of another model or optimizer: an AgreedError that changes nothing. Engine and
  // communicator must outlive this.
  OwnRun(const std::string& folder, Sharded& engine, Communicator& ranks, const OwnRunOptions& options = {});
  // A run that nobody has ended has failed: trackers are told, and a save under way is dropped.
  ~OwnRun();
  OwnRun(const OwnRun&) = delete;
  OwnRun& operator=(const OwnRun&) = delete;

  // Steps done.
  std::int64_t step() const;
  // What the loop gave the checkpoint that it goes on from; an object, empty at the beginning.
  const Json& state() const;

  // A step is done. Hears of the save under way, which costs a small collective. Collective.
  void count_step();
  // A record of step(), to metrics.jsonl and the trackers; of the first rank. Names are each once a step. A full disk
  // is an Error of kind io.
  void log(std::span<const Logged> values);
  void log(std::initializer_list<Logged> values) { log(std::span(values.begin(), values.size())); }
  void log(std::span<const NamedNumber> values);
  // Begins to write the checkpoint of step(), once the one under way is there. `state`, the first rank's, is what a
  // loop cannot know by the step alone. One that fails is told by OwnRunOptions::tell, and the loop goes on.
  // Collective.
  void save(const Json& state = Json::object());
  // Ends the run: the checkpoint of step() is there when it returns, and trackers have what they were given. What fails
  // is an AgreedError. Collective.
  void end(const Json& state = Json::object());

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace keel
