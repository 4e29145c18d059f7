#pragma once
// The model of a run that answers: `keel evaluate`, `keel predict` and `keel generate` load it, on one rank or sharded
// among several.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/dist/comm/communicator.h"
#include "keel/tasks/task.h"
#include "keel/trainer/checkpoint.h"
#include "keel/trainer/config.h"

namespace keel {

class DeviceCommunicator;
class FrozenStack;
class StackModels;

struct TrainedSource {
  // Folder of a run, or of one checkpoint; or of Hugging Face's form, or a name in the local cache of those.
  std::string path = {};
  std::optional<std::int64_t> step = {};  // of a run: its checkpoint of this step; else the newest that is whole
  bool is_best = false;                   // of a run: the one that checkpoint.best has found
  std::string average = {};               // of the weights, in their place: "ema" or "swa"
  // How it is sharded, and in which numbers it computes: "zero3", "zero2-bf16"; empty: as the run. Without a precision,
  // that of the run.
  std::string strategy = {};
  std::vector<std::string> changes = {};  // of its configuration: "data.path=other.txt"
  // The weights of the run's model.safetensors and its config.yaml instead of a checkpoint's. Then it computes in fp32
  // unless `strategy` says otherwise, with all threads.
  bool is_exported = false;
  std::shared_ptr<const ConfigKeys> keys = keel_keys();
};

// What a loader has to say beside errors, on the first rank.
using Tell = std::function<void(LogLevel level, std::string_view message)>;

class TrainedModel {
 public:
  // Opens configuration and task; makes no memory for numbers yet. Every rank calls it. Of a folder of Hugging Face's
  // form, the configuration is the first that a task of the catalog has for it. A folder that is neither a run nor a
  // checkpoint nor one of those, a run without a checkpoint, a configuration that names another task or another model:
  // an AgreedError.
  TrainedModel(TrainedSource source, Communicator& ranks, Tell tell);
  ~TrainedModel();

  // Makes and loads the model's weights, of a run's newest checkpoint that is undamaged. Parameters are frozen:
  // each rank has its shard, or all, as the stage says, and neither gradients nor an optimizer's state. Every rank
  // calls it, once. `with_frozen`: frozen models of the task, such as a teacher, get theirs, too, as its
  // validation_step() may ask them; another fingerprint than the checkpoint has is an Error.
  void load(bool with_frozen = false);
  // An Error on every rank where a weight is not finite, which names it. Every rank calls it.
  void check_finite();

  const Config& config() const { return config_; }
  const Context& context() const { return context_; }
  TaskBase& task() { return *task_; }
  Communicator& ranks() { return ranks_; }
  const std::string& checkpoint() const { return checkpoint_.path; }
  std::int64_t step() const { return checkpoint_.state.step; }
  // The run's folder, whose files stand for those of the data; empty: the checkpoint lies in none.
  const std::string& run() const { return run_; }
  DType dtype() const { return dtype_; }  // that forward passes compute in

 private:
  Checkpoint find(std::int64_t below) const;
  Checkpoint find_exported() const;
  Checkpoint find_published(const std::string& folder) const;
  Checkpoint agree_on(std::int64_t below) const;
  void open();
  void load_trained();
  void load_published(const StackModels& models);

  TrainedSource source_;
  Communicator& ranks_;
  Tell tell_;
  bool is_published_ = false;  // a folder of Hugging Face's form
  Checkpoint checkpoint_;
  std::string run_;
  Config config_;
  Context context_;
  DType dtype_ = DType::f32;
  std::unique_ptr<TaskBase> task_;
  std::unique_ptr<DeviceCommunicator> device_ranks_;
  std::vector<std::unique_ptr<FrozenStack>> trained_;
  std::vector<std::string> names_;                    // of those
  std::vector<std::unique_ptr<FrozenStack>> frozen_;  // what the task asks besides
};

}  // namespace keel
