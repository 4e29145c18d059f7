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
#include "keel/kernels/elementwise.h"
#include "keel/optim/catalog.h"
#include "keel/trainer/memory_check.h"
#include "keel/trainer/precision.h"
#include "keel/trainer/run_plan.h"

namespace keel::capi {

void Model::give_up(const std::string& reason) {
  Communicator& ranks = site_->ranks();
  if (ranks.size() > 1 && !reason.empty()) ranks.fail(concat("rank ", ranks.rank(), ": ", reason));
  added_ = 0;
  is_complete_ = false;
  if (stack_) engine().zero_grad();
}

Model::Model(std::shared_ptr<Site> site, const Settings& settings, const Wish& wish)
    : site_(std::move(site)), has_length_(settings.says("steps")) {
  Communicator& ranks = site_->ranks();
  together(ranks, [&] {
    config_ = settings.config();
    config_.checkpoint.async = false;  // the host says when it saves, and how
    if (find_optimizer(config_.optimizer.type).requirements.closure)
      throw Error(concat("optimizer.type: ", config_.optimizer.type,
                         " evaluates the loss several times in a step, which is not offered here"),
                  ErrorKind::unsupported);
    if (config_.sharding.virtual_ranks > 0)
      throw Error("sharding.virtual_ranks is not offered here: the host deals rows to ranks; set it to 0",
                  ErrorKind::unsupported);
    network_ = wish.network(config_);
    own_goal_ = make_goal(wish.loss);
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
  for (const auto& unit : engine().units())
    for (const Segment& segment : unit->layout().segments) names_.push_back(segment.name);
}

std::int64_t Model::parameters() const { return count_parameters(network_->module(), true); }

void Model::set_loss(keel_loss_function function, void* user) {
  host_goal_ = function == nullptr ? nullptr : make_host_goal(function, user, site_->ranks());
}

Forward Model::pass(bool training, std::int64_t samples) const {
  Forward pass{
      .training = training, .random = {}, .sample_ids = {}, .dtype = stack_->engine().options().policy.parameter};
  if (!training || !network_->draws()) return pass;
  // A host's samples have no numbers in the run: they are counted on each rank, in each part of each step.
  const std::int64_t first = (site_->ranks().rank() * parts_ + added_) << 32;
  pass.random = {config_.seed, static_cast<std::uint64_t>(state_.step), 0};
  pass.sample_ids = kernels::arange(site_->context, first, samples);
  return pass;
}

SampleLoss Model::forward(const Samples& samples, bool training) const {
  Forward now = pass(training, product(samples.extents));
  const std::vector<Variable> outputs = network_->forward(read_inputs(*network_, samples, now.dtype), now);
  return goal().loss(outputs, samples);
}

double Model::backward(const Arrays& arrays, bool last) {
  const Samples samples = check_inputs(*network_, arrays);
  goal().check(*network_, samples);
  KEEL_CHECK(engine().trains(), kNothingToTrain);
  KEEL_CHECK(!is_complete_, "the step's gradient is whole; keel_train_update() takes the step");
  KEEL_CHECK(last || added_ + 1 < parts_, "the settings announce steps of ", parts_, parts_ == 1 ? " part" : " parts",
             " (batch.global / (batch.micro * ranks)), and this would be one more; set batch.global");
  return among_ranks([&] {
    const SampleLoss loss = forward(samples, true);
    engine().backward(loss.value, {.weight = loss.weight, .last = last});
    state_.tokens += samples.weights.empty() ? static_cast<std::int64_t>(loss.weight) : product(samples.extents);
    ++added_;
    is_complete_ = last;
    return loss.number();
  });
}

void Model::check_complete() const {
  KEEL_CHECK(is_complete_, "there is no whole gradient; keel_train_backward() makes one of a step's last part");
}

// The loss or answers of the weights that others get, where the optimizer trains at other ones.
template <class F>
auto Model::with_averages(const F& f) {
  engine().use_averages(true);
  try {
    const auto result = f();
    engine().use_averages(false);
    return result;
  } catch (...) {
    if (is_thrown_by_all(site_->ranks())) engine().use_averages(false);
    throw;
  }
}

double Model::evaluate(const Arrays& arrays) {
  const Samples samples = check_inputs(*network_, arrays);
  goal().check(*network_, samples);
  const NoGrad no_grad;
  return among_ranks([&] {
    const SampleLoss loss = with_averages([&] { return forward(samples, false); });
    struct Sum {
      double loss, weight;
    } sum{0, 0};
    for (const Sum& each : gather_values(site_->ranks(), Sum{loss.number() * loss.weight, loss.weight})) {
      sum.loss += each.loss;
      sum.weight += each.weight;
    }
    return sum.weight > 0 ? sum.loss / sum.weight : 0;
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
    is_complete_ = false;
    ++state_.step;
    if (!result.taken)
      site_->context.log(LogLevel::warning,
                         concat("step ", state_.step, " was not taken: ",
                                result.weight > 0 ? concat("the gradient of ", result.first_bad, " is not finite")
                                                  : std::string("no rank has had a sample")));
    return result;
  });
}

void Model::infer(const Arrays& arrays) {
  const Samples samples = check_inputs(*network_, arrays);
  check_answers(*network_, samples);
  const NoGrad no_grad;
  among_ranks([&] {
    Forward answering = pass(false, 0);
    const std::vector<Variable> answers =
        with_averages([&] { return network_->forward(read_inputs(*network_, samples, answering.dtype), answering); });
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const Array& to = *samples.arrays.targets[i];
      write_array(kernels::contiguous(answers[i].value()).view(to.tensor.shape()), to);
    }
  });
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
