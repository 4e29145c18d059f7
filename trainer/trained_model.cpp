#include "keel/trainer/trained_model.h"

#include <filesystem>
#include <utility>

#include "keel/dist/checkpoint/hub_weights.h"
#include "keel/dist/checkpoint/load.h"
#include "keel/dist/checkpoint/snapshot.h"
#include "keel/dist/comm/agreement.h"
#include "keel/runtime/file.h"
#include "keel/runtime/hub_cache.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/checkpoint_list.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/frozen_stack.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/resume.h"
#include "keel/trainer/run_folder.h"
#include "keel/trainer/shared_folder.h"
#include "keel/trainer/stack_models.h"
#include "keel/trainer/weights_source.h"

namespace keel {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// The strategy as a change of the configuration; `before` is that of the run.
std::string strategy_change(const std::string& name, const Config& before) {
  WrittenStrategy written = read_strategy(name);
  const bool says = written.says_precision && written.strategy.precision != Strategy::Precision::automatic;
  if (!says) written.strategy.precision = before.strategy.precision;
  if (const std::string missing = why_not_offered(written.strategy); !missing.empty())
    throw Error(concat("--strat ", name, ": ", missing), ErrorKind::unsupported);
  return concat("strategy=", to_string(written.strategy));
}

// The folder of Hugging Face's form that a path means; empty: it means something else.
std::string published_folder(const std::string& path) {
  if (is_hub_folder(path)) return path;
  return std::filesystem::exists(path) ? std::string() : hub_folder(path);
}

}  // namespace

TrainedModel::TrainedModel(TrainedSource source, Communicator& ranks, Tell tell)
    : source_(std::move(source)), ranks_(ranks), tell_(std::move(tell)) {
  together(ranks_, [&] { is_published_ = !published_folder(source_.path).empty(); });
  checkpoint_ = agree_on(kNoLimit);
  together(ranks_, [&] { open(); });
}

TrainedModel::~TrainedModel() = default;

Checkpoint TrainedModel::find(std::int64_t below) const {
  const auto complain = [this](std::string_view what) { tell_(LogLevel::warning, what); };
  if (source_.is_best) return find_best_checkpoint(source_.path, source_.keys);
  return find_checkpoint(source_.path, source_.step, complain, below, source_.keys);
}

Checkpoint TrainedModel::find_exported() const {
  const RunFolder folder(source_.path);
  KEEL_CHECK(std::filesystem::exists(folder.config()), "'", source_.path,
             "' is not the folder of a run: it has no config.yaml");
  Checkpoint found;
  found.path = source_.path;
  found.state.config = read_text_file(folder.config());
  const Config config = parse_stored_config(source_.keys, found.state.config, folder.config());
  ManifestJoin models;
  for (const std::string& name : source_.keys->tasks().find(config.task)->model_names()) {
    KEEL_CHECK(std::filesystem::exists(folder.model(name)), "'", source_.path,
               "' has no model yet; it is written with the first checkpoint");
    const std::string file = std::filesystem::path(folder.model(name)).filename().string();
    models.add(describe_files(source_.path, section_of_stack(name, "weights"), std::span(&file, 1)));
  }
  found.manifest = std::move(models).finish();
  return found;
}

Checkpoint TrainedModel::find_published(const std::string& folder) const {
  const bool asks = source_.step || source_.is_best || !source_.average.empty();
  KEEL_CHECK(!asks, "'", folder, "' is a folder of Hugging Face's form, which has neither steps nor averages");
  Checkpoint found;
  found.path = folder;
  for (const TaskEntry& task : source_.keys->tasks().entries()) {
    if (task.of_hub == nullptr) continue;
    const std::string config = task.of_hub(folder);
    if (config.empty()) continue;
    found.state.config = concat("steps: 1\n", config);  // a run has some; nothing here is trained
    return found;
  }
  throw Error(concat("'", folder, "' has a model of Hugging Face's form that none of these tasks has: `keel tasks`"),
              ErrorKind::unsupported);
}

Checkpoint TrainedModel::agree_on(std::int64_t below) const {
  Checkpoint found;
  if (is_published_) {
    together(ranks_, [&] { found = find_published(published_folder(source_.path)); });
    return found;
  }
  if (source_.is_exported) {
    together(ranks_, [&] { found = find_exported(); });
    return found;
  }
  together(ranks_, [&] {
    if (ranks_.rank() == 0) found = find(below);
  });
  found = broadcast_checkpoint(std::move(found), ranks_);
  check_readable_by_all(found.path, ranks_);
  return found;
}

void TrainedModel::open() {
  const bool is_first = ranks_.rank() == 0;
  const bool is_exported = source_.is_exported || is_published_;
  if (!is_published_) run_ = RunFolder::meant_by(source_.path);
  if (!is_published_ && run_.empty()) run_ = RunFolder::around(checkpoint_.path);
  const std::string name = source_.is_exported && !is_published_ ? RunFolder(source_.path).config() : checkpoint_.path;
  check_has_configuration(checkpoint_);
  Config before = parse_stored_config(source_.keys, checkpoint_.state.config, name);
  if (is_exported) before.strategy.precision = Strategy::Precision::fp32;
  std::vector<std::string> changes = {"sharding.gradient=auto"}, notes;  // there are none, in whatever numbers
  changes.insert(changes.end(), source_.changes.begin(), source_.changes.end());
  if (!source_.strategy.empty()) changes.push_back(strategy_change(source_.strategy, before));
  config_ = parse_stored_config(source_.keys, checkpoint_.state.config, name, changes, &notes);
  const bool says_precision = !is_exported && config_.strategy.precision != Strategy::Precision::automatic;
  if (source_.strategy.empty() && !says_precision) config_.strategy.precision = before.strategy.precision;
  if (is_exported) {
    config_.threads = 0;
    config_.kernels = KernelChoice::automatic;
  }
  check_same_model(checkpoint_, config_);
  for (const std::string& note : notes)
    if (is_first) tell_(LogLevel::info, note);
  context_ = make_context(config_, ranks_, [this, is_first](LogLevel level, std::string_view message) {
    if (is_first) tell_(level, message);
  });
  task_ = make_task(config_, context_.host(), run_);
}

void TrainedModel::load(bool with_frozen) {
  KEEL_CHECK(trained_.empty(), "the model's weights are loaded already");
  std::optional<StackModels> models;
  together(ranks_, [&] {
    models.emplace(*task_);
    if (is_published_ && ranks_.rank() == 0) check_shapes_of_weights(*models);
  });
  device_ranks_ = std::make_unique<DeviceCommunicator>(config_, context_, ranks_);
  const StackSite site{config_, context_, **device_ranks_};
  int subject = 1;
  const auto add = [&](std::vector<std::unique_ptr<FrozenStack>>& to, const StackModel& model) -> FrozenStack& {
    to.push_back(std::make_unique<FrozenStack>(site, *model.module, subject));
    subject += static_cast<int>(to.back()->engine().units().size());
    return *to.back();
  };
  for (const StackModel& model : models->trained()) {
    add(trained_, model);
    names_.push_back(model.name);
  }
  dtype_ = trained_.front()->engine().options().policy.parameter;
  if (is_published_) load_published(*models);
  else load_trained();
  if (!with_frozen) return;
  for (const StackModel& model : models->frozen()) {
    const std::string found = load_frozen(model, add(frozen_, model), ranks_);
    const auto known = checkpoint_.state.frozen.find(model.name);
    if (known != checkpoint_.state.frozen.end() && known->second != found)
      throw AgreedError(concat("the frozen model '", model.name, "' has other weights, in '", model.weights,
                               "', than when '", checkpoint_.path, "' was made"));
  }
}

void TrainedModel::load_trained() {
  while (true) {
    std::vector<std::string> sections;  // of the models that are trained
    together(ranks_, [&] {
      for (const std::string& name : names_) sections.push_back(section_of_weights(checkpoint_, source_.average, name));
    });
    try {
      for (std::size_t i = 0; i < trained_.size(); ++i)
        load_weights(checkpoint_.path, checkpoint_.manifest, trained_[i]->engine(), ranks_, sections[i]);
      return;
    } catch (const Error& error) {
      const bool may_have_others =
          !source_.is_exported && !source_.step && !source_.is_best && !RunFolder::meant_by(source_.path).empty();
      if (!is_thrown_by_all(ranks_) || !may_have_others) throw;
      if (ranks_.rank() == 0)
        tell_(LogLevel::warning,
              concat("the checkpoint of step ", checkpoint_.state.step, " is not usable: ", error.what()));
    }
    checkpoint_ = agree_on(checkpoint_.state.step);
  }
}

void TrainedModel::load_published(const StackModels& models) {
  for (std::size_t i = 0; i < trained_.size(); ++i)
    load_named_weights(models.trained()[i], trained_[i]->engine(), ranks_, false,
                       [this](const std::string& note) { tell_(LogLevel::warning, note); });
}

void TrainedModel::check_finite() {
  if (is_published_) return;  // load() has
  together(ranks_, [&] {
    for (std::size_t i = 0; i < trained_.size(); ++i) {
      const std::string bad = first_not_finite(trained_[i]->engine().weights());
      KEEL_CHECK(bad.empty(), "'", source_.is_exported ? RunFolder(source_.path).model(names_[i]) : checkpoint_.path,
                 "': ", bad, " has numbers that are not finite; an earlier checkpoint of the run may be sound");
    }
  });
}

}  // namespace keel
