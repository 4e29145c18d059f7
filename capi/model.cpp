#include "keel/capi/model.h"

#include <cmath>
#include <filesystem>
#include <span>
#include <utility>

#include "keel/capi/handles.h"
#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/dist/checkpoint/load.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/optim/catalog.h"
#include "keel/trainer/memory_check.h"
#include "keel/trainer/precision.h"
#include "keel/trainer/run_plan.h"

namespace keel::capi {

// What fails on this rank alone would leave the others waiting; they hear of it. The engine can begin anew.
template <class F>
auto Model::among_ranks(const F& f) {
  try {
    return f();
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    const bool is_known_to_all =
        dynamic_cast<const AgreedError*>(&error) != nullptr || (known != nullptr && known->kind() == ErrorKind::peer);
    Communicator& ranks = site_->ranks();
    if (ranks.size() > 1 && !is_known_to_all) ranks.fail(concat("rank ", ranks.rank(), ": ", error.what()));
    added_ = 0;
    if (stack_) engine().zero_grad();
    throw;
  }
}

Model::Model(std::shared_ptr<Site> site, const Settings& settings, const MakeNetwork& make)
    : site_(std::move(site)), has_length_(settings.says("steps")) {
  Communicator& ranks = site_->ranks();
  together(ranks, [&] {
    config_ = settings.config();
    config_.checkpoint.async = false;  // the host says when it saves, and how
    if (find_optimizer(config_.optimizer.type).requirements.closure)
      throw Error(concat("optimizer.type: ", config_.optimizer.type,
                         " evaluates the loss several times in a step, which is not offered here"),
                  ErrorKind::unsupported);
    network_ = make(config_);
    parts_ = planned_micro_batches(config_, ranks.size());
  });
  among_ranks([&] {
    Strategy::Precision& precision = config_.strategy.precision;
    if (precision == Strategy::Precision::automatic)
      precision =
          gather_values(ranks, choose_precision(site_->context, inner_extent(network_->module())).precision).front();
    check_memory(config_, network_->module(), ranks, site_->context);
    ranks_.emplace(config_, site_->context, ranks);
    stack_.emplace(StackSite{config_, site_->context, **ranks_, parts_}, network_->module());
    if (!stack_->warning().empty()) site_->context.log(LogLevel::warning, stack_->warning());
  });
  state_.config = to_yaml(config_);
}

std::int64_t Model::parameters() const { return count_parameters(network_->module(), true); }

double Model::backward(const Array& input, const Array& target, bool last) {
  network_->check(input, target);
  KEEL_CHECK(last || added_ + 1 < parts_, "the settings announce steps of ", parts_, parts_ == 1 ? " part" : " parts",
             " (batch.global / (batch.micro * ranks)), and this would be one more; set batch.global");
  return among_ranks([&] {
    const SampleLoss loss = network_->loss(input, target);
    engine().backward(loss.value, {.weight = loss.samples, .last = last});
    state_.tokens += loss.samples;
    ++added_;
    return loss.samples == 0 ? 0 : loss.value.value().item();
  });
}

void Model::check_rate(double lr) const {
  if (lr == KEEL_SCHEDULED) {
    KEEL_CHECK(has_length_, "KEEL_SCHEDULED needs to know how long training takes: set steps");
  } else {
    KEEL_CHECK(std::isfinite(lr) && lr >= 0, "the learning rate is ", lr, "; it must be 0 or more, or KEEL_SCHEDULED");
  }
}

StepResult Model::step(double lr) {
  return among_ranks([&] {
    const StepResult result = (lr == KEEL_SCHEDULED ? engine().step(stack_->curves()) : engine().step(lr)).get();
    added_ = 0;
    ++state_.step;
    if (!result.taken)
      site_->context.log(LogLevel::warning,
                         concat("step ", state_.step, " was not taken: ",
                                result.weight > 0 ? concat("the gradient of ", result.first_bad, " is not finite")
                                                  : std::string("no rank has had a sample")));
    return result;
  });
}

void Model::infer(const Array& input, const Array& output) {
  network_->check_answer(input, output);
  check_writable(output);
  const NoGrad no_grad;
  among_ranks([&] { write_array(network_->answer(input, output), output); });
}

void Model::save(const std::string& folder) const {
  save_checkpoint(folder, stack_->engine(), site_->ranks(), json_of(state_));
}

void Model::begin_save(const std::string& folder) {
  Communicator& ranks = site_->ranks();
  if (!background_) {
    std::unique_ptr<AsyncSave> made;
    together(ranks, [&] { made = std::make_unique<AsyncSave>(engine(), ranks); });
    background_ = std::move(made);
  }
  background_->begin(folder, json_of(state_));
}

std::optional<SaveResult> Model::poll_save() {
  if (!is_saving()) return std::nullopt;
  std::optional<SaveResult> result = background_->poll();
  if (result) take(*result);
  return result;
}

void Model::finish_save() {
  KEEL_CHECK(is_saving(), "no save is under way; keel_model_save_begin() begins one");
  take(background_->finish());
}

void Model::take(const SaveResult& result) const {
  if (!result.failure.empty()) throw AgreedError(result.failure, ErrorKind::io);
  if (!result.warning.empty()) site_->context.log(LogLevel::warning, result.warning);
}

void Model::load(const std::string& folder) {
  Communicator& ranks = site_->ranks();
  Checkpoint checkpoint;
  together(ranks, [&] {
    if (ranks.rank() == 0) checkpoint = open_checkpoint(folder);
  });
  checkpoint = broadcast_checkpoint(std::move(checkpoint), ranks);
  // All of it before any number of the model changes.
  together(ranks, [&] {
    check_checkpoint(folder, checkpoint.manifest, engine());
    ExtentReader(folder, checkpoint.manifest).verify(ranks.rank(), ranks.size());
  });
  among_ranks([&] { load_checkpoint(folder, checkpoint.manifest, engine(), ranks); });
  checkpoint.state.config = state_.config;
  state_ = checkpoint.state;
}

void Model::load_weights(const std::string& file) {
  const std::filesystem::path path(file);
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  const std::string name = path.filename().string();
  among_ranks([&] { keel::load_weights(folder, std::span(&name, 1), engine(), site_->ranks()); });
}

}  // namespace keel::capi
