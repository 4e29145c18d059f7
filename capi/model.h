#pragma once
// A model and the engine that trains it, as a host holds them.

#include <memory>
#include <optional>
#include <string>

#include "keel/capi/network.h"
#include "keel/dist/checkpoint/async_save.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/checkpoint.h"
#include "keel/trainer/stack.h"

namespace keel::capi {

// What a keel_model is. Collective functions are called by all ranks of the site.
class Model {
 public:
  // `make` returns the network that a configuration asks for. Collective.
  using MakeNetwork = std::function<std::unique_ptr<Network>(const Config&)>;
  Model(std::shared_ptr<Site> site, const Settings& settings, const MakeNetwork& make);

  Site& site() const { return *site_; }
  std::int64_t parameters() const;

  // Forward and backward; `last`: of the step. Returns this rank's loss. Collective.
  double backward(const Array& input, const Array& target, bool last);
  // `lr` < 0: the schedule's. Collective.
  StepResult step(double lr);
  void check_rate(double lr) const;
  void infer(const Array& input, const Array& output);

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
  void take(const SaveResult& result) const;
  Sharded& engine() { return stack_->engine(); }

  std::shared_ptr<Site> site_;
  Config config_;
  bool has_length_;  // the settings say how many steps training has
  std::unique_ptr<Network> network_;
  std::optional<DeviceCommunicator> ranks_;
  std::optional<Stack> stack_;
  std::unique_ptr<AsyncSave> background_;  // once somebody has asked for one
  std::int64_t parts_ = 1, added_ = 0;     // parts of a step: at most, and so far
  TrainState state_;
};

}  // namespace keel::capi
