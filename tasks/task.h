#pragma once
// What is learnt: data, model, loss, metrics and answers. Everything else (ranks, stages, precision, checkpoints,
// commands) is the trainer's.
//
//   class MyTask : public Task {
//     Module& model() override { return net_; }
//     Data data() override { ... }
//     Loss training_step(const Batch& batch, Forward& pass) override {
//       return cross_entropy(net_(input(batch, "x", pass), pass), batch["label"]);
//     }
//   };
//
// Rules that stages, resuming and other numbers of ranks rest on:
//   - A step is a function of batch, pass and parameters. A member that it writes is forgotten with the process.
//   - Every rank makes one task of the same settings, and calls the same functions the same number of times.
//   - Random draws come from pass.random (in models) or from the collator (in data).
//   - The number of forward passes does not depend on the data of one rank: loops go on by any_goes_on(pass.group, ...)
//     of keel/nn/rank_group.h.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/config/settings.h"
#include "keel/data/collator.h"
#include "keel/data/dataset.h"
#include "keel/data/sampler.h"
#include "keel/nn/hub_tensor.h"
#include "keel/nn/module.h"
#include "keel/tasks/loss.h"
#include "keel/tasks/metric.h"
#include "keel/tasks/predictions.h"

namespace keel {

// The run that one may go on from.
struct KeptRun {
  std::string folder = {};  // empty: there is none
  Settings settings = {};   // of its configuration, of the same task
};

// What a task is made of: the same on every rank.
struct TaskSite {
  Settings settings = {};  // values of the task's rows
  std::uint64_t seed = 1;  // of the run
  std::uint64_t data_seed = 1;
  std::int64_t rows = 1;             // of a step, of all ranks together
  std::int64_t validation_rows = 1;  // of a batch of validation that takes no more memory than training
  Context host = {};                 // where batches are made
  std::string run = {};              // folder of a run whose model is asked; its Data::files stand for the data's own
  // What it keeps stands for what the settings name as that run's do, and is no longer there.
  KeptRun kept = {};
  std::int64_t steps = 0;  // of the whole run; 0: epochs of the data say
  // Told how much of a file of data is indexed, or of its documents packed; empty: nobody asks.
  std::function<void(std::uint64_t done, std::uint64_t all)> progress = {};
};

struct ValidationSet {
  // "": the only one; letters, digits and _; not "train".
  std::string name = {};
  std::shared_ptr<const BatchSource> source = {};  // finite
  std::string path = {};                           // of its file; empty: it is a part of what is trained on
};

struct Data {
  std::shared_ptr<const BatchSource> training = {};  // null: there is nothing to train on
  std::vector<ValidationSet> validation = {};
  std::string note = {};  // on what the data was taken for; empty: nothing
  // Small files that belong to what was learnt, by name and text, such as "tokenizer.json". A run's folder keeps them,
  // and a run that goes on with another text is an Error. Plain names, none of the run folder's own. An empty text:
  // there is no such file, and what an earlier session left is removed.
  std::vector<std::pair<std::string, std::string>> files = {};
  // Likewise, of what the configuration says anyway: written anew by each session.
  std::vector<std::pair<std::string, std::string>> derived = {};
};

struct ExampleSet {
  std::string name = {};  // as ValidationSet::name
  DatasetPtr examples = {};
  std::string path = {};  // likewise
};
struct DividedExamples {
  DatasetPtr trained = {};
  std::vector<ExampleSet> validation = {};
};
// A fraction of the examples, drawn by the seed, is validated on; none where there would be no example of it.
DividedExamples held_back(const DatasetPtr& examples, double fraction, std::uint64_t seed);

struct MakeDataOptions {
  std::vector<std::string> varying = {};  // as SourceOptions::varying
  LastRows last = LastRows::fewer;        // rows at an epoch's end
  // Above 0: rows of a training step have like lengths, sorted in windows of so many steps (grouped_by_length()).
  std::int64_t length_window = 0;
  Collator training = {};  // of training; empty: as for validation
};
// Training on examples that are shuffled in each epoch, and validation on each of the sets in order. A set without
// examples is an Error.
Data make_data(const TaskSite& site, const DividedExamples& examples, const Collator& collator,
               const MakeDataOptions& options = {});
// Training and validation of one data set, for most tasks: a fraction of its examples, drawn by the data's seed, is
// held out (0: none); the others are shuffled in each epoch. `varying`: fields whose extents differ from batch to
// batch, as where pad() fills rows up to the longest.
Data make_data(const TaskSite& site, const DatasetPtr& examples, double held_out, const Collator& collator,
               const std::vector<std::string>& varying = {});
// Each example once, in order, in batches of validation: for prediction_data(). No example is an Error.
std::shared_ptr<const BatchSource> in_order(const TaskSite& site, const DatasetPtr& examples, const Collator& collator,
                                            const std::vector<std::string>& varying = {});

// A field as input of a model: floating numbers in the dtype that the pass computes in, others as they are.
Variable input(const Batch& batch, std::string_view field, const Forward& pass);
// The loss and its terms join the means of a validation set, by the batch's weights.
void feed(Metrics& metrics, const Loss& loss, const Batch& batch);

struct AnswerOptions {
  std::int64_t tokens = 200;
  double temperature = 0.8;  // 0: always the likeliest token
  std::int64_t top_k = 0;    // 0: among all
  std::uint64_t seed = 1;
  // See keel/models/sampling.h.
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  std::vector<std::string> stop = {};  // the answer ends before the first of these; none is empty
  std::uint64_t first_row = 0;         // number of the first prompt among all
};

// Adapters of a model (keel/models/lora.h) as files of PEFT's form have them.
struct AdapterForm {
  HubNames names = {};
  std::string config = {};   // adapter_config.json
  std::string weights = {};  // folder of those that the model begins with, beside its weights; empty: initial numbers
};

// A model of a task. Its module, and all that is said of it, is the same on every rank.
struct StackModel {
  std::string name = {};  // letters, digits and _; "": the only one that is trained
  Module* module = nullptr;
  // Its parameters are sharded as the others' are, but have no gradients, no optimizer, and are not in checkpoints.
  // These keep a fingerprint of its weights, and another one at a resume is an Error.
  bool frozen = false;
  // Where the weights are that a frozen model has, and that one which is trained begins with, where its run does not go
  // on from a checkpoint: a safetensors file, a folder of such files with an index, a checkpoint, the folder of a run,
  // whose newest checkpoint is taken, or a folder of Hugging Face's form. Empty: it is trained from its initial
  // numbers.
  std::string weights = {};
  // How files of that form hold it; null: none do.
  std::shared_ptr<const HubNames> hub = {};
  std::shared_ptr<const AdapterForm> adapters = {};  // null: it has none, or no form of PEFT's
  int passes = 1;  // of one that a ManualTask trains: accumulate() calls between two updates, at most
};

// What a folder of Hugging Face's form has beside the weights of a trained model.
struct HubFiles {
  std::string why_not = {};                                     // there can be no such folder; empty: there can
  std::vector<std::pair<std::string, std::string>> files = {};  // by name and text: config.json, the tokenizer's
  std::vector<std::string> notes = {};
};

// What all tasks have in common.
class TaskBase {
 public:
  virtual ~TaskBase() = default;
  TaskBase(const TaskBase&) = delete;
  TaskBase& operator=(const TaskBase&) = delete;

  // All models, those that are trained first, in an order that never changes; no two have a parameter in common. Needs
  // no data() before: a task whose model depends on its data opens it. Makes no memory for numbers, so that `keel plan`
  // can ask. The same objects at every call.
  virtual std::vector<StackModel> stacks() = 0;
  // Opens the data. Called once. Missing or malformed data is an Error with file and line. The default: a task without
  // data, which `keel train` refuses.
  virtual Data data() { return {}; }

  // Why a training step cannot be recorded once and repeated with other batches of the same extents, as cuda_graph
  // does; empty: it asks the device for the same work in every step, never reads numbers on the host, and its loss has
  // one term.
  virtual std::string why_not_recordable() const { return "the task does not say that it can be recorded"; }

  // Makes the metrics of a validation set. "loss" is there without it.
  virtual void make_metrics(std::string_view /*set*/, Metrics& /*metrics*/) {}
  // Feeds them with one batch, without gradients; feed() takes the losses of a forward pass that is made anyway. Ranks
  // without a batch of their own call it with another's, and what they feed is dropped.
  virtual void validation_step(const Batch& batch, Forward& pass, Metrics& metrics) = 0;

  // What `keel predict` reads of a file, in order; without labels. Needs no data() before. Malformed input is an Error.
  // The default refuses: ErrorKind::unsupported.
  virtual std::shared_ptr<const BatchSource> prediction_data(const std::string& path);
  // What the model says of each example of a batch of it, without gradients. As validation_step(), ranks without a
  // batch of their own call it with another's, and what they say is dropped. The default refuses:
  // ErrorKind::unsupported.
  virtual void predict_step(const Batch& batch, Forward& pass, Predictions& out);

  // What the model makes of a text, for `keel generate`, piece by piece. Every rank calls it with the same words, and
  // on_text as often, also with nothing; the first one's is heard. The default refuses: ErrorKind::unsupported.
  virtual void answer(std::string_view prompt, const AnswerOptions& options, Forward& pass,
                      const std::function<void(std::string_view)>& on_text);
  // The same of several texts at once, where on_text is called with the prompt's place among them: each has the answer
  // that it has alone as row first_row + place. The default lets answer() make one after the other.
  virtual void answer_all(std::span<const std::string> prompts, const AnswerOptions& options, Forward& pass,
                          const std::function<void(std::size_t prompt, std::string_view)>& on_text);

  // For `keel get --format hf`, with weights of the dtype. Needs stacks(), and no data() before.
  virtual HubFiles hub_files(DType dtype);

  // The weight that speed is told in: "tokens" or "rows".
  virtual std::string_view unit() const { return kRowWeight; }
  // Positions of a row, such as the tokens of a window, for predictions of a step's work without data.
  virtual std::int64_t positions() const { return 1; }
  // Whether every row has so many positions, so that a curriculum of lengths can cut it; not where rows are filled up
  // to the longest of a step.
  virtual bool has_equal_rows() const { return true; }
  // Warnings about settings that fit together badly.
  virtual std::vector<std::string> notes() { return {}; }

 protected:
  TaskBase() = default;
};

// A task that is one function to be made small. It has one model that is trained (a struct of several, if need be:
// groups of options go by names of parameters), and one engine, whose norm, loss scale and skipped steps hold for all
// of it.
class Task : public TaskBase {
 public:
  // That is trained. See TaskBase::stacks().
  virtual Module& model() = 0;
  // A frozen model that training_step may ask, and where its weights are (StackModel::weights).
  struct Teacher {
    Module* module = nullptr;  // null: there is none
    std::string weights = {};
    std::shared_ptr<const HubNames> hub = {};
  };
  virtual Teacher teacher() { return {}; }
  // Where the weights of model() begin, and how others' files hold it: see StackModel.
  struct Beginning {
    std::string weights = {};
    std::shared_ptr<const HubNames> hub = {};
    std::shared_ptr<const AdapterForm> adapters = {};
  };
  virtual Beginning beginning() { return {}; }

  // The loss of one micro-batch, by weights of the batch. Called again on the same batch where the optimizer evaluates
  // several times, and where a loss was not finite and the trainer looks for the tensor. A teacher is asked with
  // pass.evaluating(), and under NoGrad where no gradient is to flow through it.
  virtual Loss training_step(const Batch& batch, Forward& pass) = 0;

  std::vector<StackModel> stacks() override;
  // The losses of training_step: "loss", and each term of it by its name.
  void validation_step(const Batch& batch, Forward& pass, Metrics& metrics) override;
};

}  // namespace keel
