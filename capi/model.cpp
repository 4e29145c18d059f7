#include "keel/capi/model.h"

#include <cmath>

#include "keel/capi/handles.h"
#include "keel/data/batch.h"
#include "keel/data/safetensors.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/optim/catalog.h"
#include "keel/trainer/precision.h"

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
    if (engine_) engine_->zero_grad();
    throw;
  }
}

Model::Model(std::shared_ptr<Site> site, const Settings& settings, const MakeNetwork& make)
    : site_(std::move(site)), has_length_(settings.says("steps")) {
  Communicator& ranks = site_->ranks();
  together(ranks, [&] {
    config_ = settings.config();
    if (find_optimizer(config_.optimizer.type).make != nullptr)
      throw Error(concat("optimizer.type: ", config_.optimizer.type,
                         " evaluates the loss several times in a step, which is not offered here"),
                  ErrorKind::unsupported);
    network_ = make(config_);
    parts_ = static_cast<std::int64_t>(
        divide_rows(config_.batch.global, config_.batch.micro, ranks.rank(), ranks.size()).size());
  });
  among_ranks([&] {
    Strategy::Precision& precision = config_.strategy.precision;
    if (precision == Strategy::Precision::automatic)
      precision = gather_values(ranks, choose_precision(site_->context, config_.model.width).precision).front();
    ranks_.emplace(config_, site_->context, ranks);
    engine_.emplace(network_->module(), site_->context, **ranks_, make_optimizer(config_),
                    engine_options(config_, parts_, network_->module()));
    if (const std::string note = check_groups(config_, *engine_); !note.empty())
      site_->context.log(LogLevel::warning, note);
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
    engine_->backward(loss.value, {.tokens = loss.samples, .last = last});
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
    if (lr == KEEL_SCHEDULED && !curves_.rates.defined()) curves_ = make_curves(config_, site_->context);
    const StepResult result = (lr == KEEL_SCHEDULED ? engine_->step(curves_) : engine_->step(lr)).get();
    added_ = 0;
    ++state_.step;
    if (!result.taken)
      site_->context.log(LogLevel::warning, concat("step ", state_.step, " was not taken: the gradient of ",
                                                   result.first_bad, " is not finite"));
    return result;
  });
}

void Model::infer(const Array& input, const Array& output) {
  network_->check_answer(input, output);
  check_writable(output);
  const NoGrad no_grad;
  among_ranks([&] { write_array(network_->answer(input, output), output); });
}

void Model::save(const std::string& folder) const { save_checkpoint(folder, *engine_, site_->ranks(), state_); }

void Model::load(const std::string& folder) {
  Communicator& ranks = site_->ranks();
  // One rank reads all files to see whether they are whole.
  TrainState state;
  together(ranks, [&] {
    if (ranks.rank() == 0) state = read_checkpoint(folder);
  });
  together(ranks, [&] {
    if (ranks.rank() != 0) state = read_state(folder);
    check_checkpoint(folder, state, *engine_);
  });
  among_ranks([&] { load_checkpoint(folder, state, *engine_); });
  state.config = state_.config;
  state_ = state;
}

void Model::load_weights(const std::string& file) {
  TensorParts parts;
  together(site_->ranks(), [&] {
    parts = parse_parts(SafetensorsFile(file).views(site_->context.host()));
    try {
      engine_->check_weights(parts);
    } catch (const Error& error) { throw Error(concat("'", file, "': ", error.what()), error.kind()); }
  });
  among_ranks([&] { engine_->load_weights(parts); });
}

}  // namespace keel::capi
