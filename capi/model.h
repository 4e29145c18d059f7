#pragma once
// A model and the engine that trains it, as a host holds them.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "keel/capi/goal.h"
#include "keel/dist/checkpoint/async_save.h"
#include "keel/dist/comm/agreement.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/checkpoint.h"
#include "keel/trainer/stack.h"

namespace keel::capi {

// What a keel_model is. Collective functions are called by all ranks of the site.
class Model {
 public:
  // What a host asks for: a network, and the name of its loss.
  struct Wish {
    std::function<std::unique_ptr<Network>(const Config&)> network;
    std::string loss;
  };
  // Collective.
  Model(std::shared_ptr<Site> site, const Settings& settings, const Wish& wish);

  Site& site() const { return *site_; }
  std::int64_t parameters() const;

  const Network& network() const { return *network_; }
  // The host's own loss in place of the model's; null: the model's again.
  void set_loss(keel_loss_function function, void* user);

  // Forward and backward; `last`: of the step. Returns this rank's loss. Collective.
  double backward(const Arrays& arrays, bool last);
  // `lr` < 0: the schedule's. Collective.
  StepResult step(double lr);
  void check_rate(double lr) const;
  // An Error unless a backward() was the last of a step.
  void check_complete() const;
  // The mean loss over the samples of all ranks. Collective.
  double evaluate(const Arrays& arrays);
  void infer(const Arrays& arrays);

  // The names of parameters, in the order of the model.
  const std::vector<std::string>& names() const { return names_; }
  const Dims& shape_of(const std::string& name) const;
  // Whole parameters and gradients, to and from arrays of their shape. Collective.
  void get_weights(const std::string& name, const Array& to);
  void set_weights(const std::string& name, const Array& from);
  void get_gradient(const std::string& name, const Array& to);

  // Collective, all of them.
  void save(const std::string& folder) const;
  void begin_save(const std::string& folder);
  // Nothing: the save under way goes on; a result is told once. A failure is an AgreedError.
  std::optional<SaveResult> poll_save();
  void finish_save();
  bool is_saving() const { return background_ && background_->is_under_way(); }
  void load(const std::string& folder);
  void load_weights(const std::string& file);

 private:
  template <class F>
  auto among_ranks(const F& f);
  template <class F>
  auto with_averages(const F& f);
  // Forgets the step, and tells the other ranks the reason; empty: they know.
  void give_up(const std::string& reason);
  void take(const SaveResult& result) const;
  Sharded& engine() { return stack_->engine(); }
  const Goal& goal() const { return host_goal_ ? *host_goal_ : *own_goal_; }
  Forward pass(bool training, std::int64_t samples) const;
  SampleLoss forward(const Samples& samples, bool training) const;
  void check_parameter(const std::string& name, const Array& array) const;

  std::shared_ptr<Site> site_;
  Config config_;
  bool has_length_;  // the settings say how many steps training has
  std::unique_ptr<Network> network_;
  std::unique_ptr<Goal> own_goal_, host_goal_;
  std::optional<DeviceCommunicator> ranks_;
  std::optional<Stack> stack_;
  std::unique_ptr<AsyncSave> background_;  // once somebody has asked for one
  std::int64_t parts_ = 1, added_ = 0;     // parts of a step: at most, and so far
  bool is_complete_ = false;               // the last part of the step was there
  std::vector<std::string> names_;
  TrainState state_;
};

// What fails on this rank alone would leave the others waiting; they hear of it. The engine can begin anew.
template <class F>
auto Model::among_ranks(const F& f) {
  try {
    return f();
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    const bool is_known_to_all =
        dynamic_cast<const AgreedError*>(&error) != nullptr || (known != nullptr && known->kind() == ErrorKind::peer);
    give_up(is_known_to_all ? "" : error.what());
    throw;
  }
}

}  // namespace keel::capi
