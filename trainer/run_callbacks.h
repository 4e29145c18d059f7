#pragma once
// The callbacks of one rank's run: their events, what they ask for, what they keep, and what becomes of one that
// throws.

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/dist/checkpoint/saved_beside.h"
#include "keel/dist/comm/communicator.h"
#include "keel/trainer/callback.h"
#include "keel/trainer/checkpoint.h"
#include "keel/trainer/metrics.h"
#include "keel/trainer/progress.h"
#include "keel/trainer/training_step.h"

namespace keel {

class RunCallbacks final : public LoopView, public StepWatcher {
 public:
  struct Site {
    const std::string& run_folder;
    const std::string& config;
    Sharded& engine;
    Communicator& ranks;
    TrainObserver& observer;
  };
  // All outlive this. An Error for names that are none, or that two have.
  RunCallbacks(Callbacks callbacks, const Site& site);

  bool empty() const { return callbacks_.empty(); }
  LoopState& loop() { return state_; }
  // Of a step that has come out, on how much in all.
  void note(const StepOutcome& outcome, std::int64_t units);

  // Events. What a callback throws is kept, and raises wishes().failed; see Callback.
  using Event = void (Callback::*)(LoopView&);
  void tell(std::string_view name, Event event);
  void tell_evaluation_end(bool done);
  void tell_saved(const std::string& path, std::int64_t step);
  // The same where all ranks hear of what one throws at once, as an AgreedError.
  void tell_together(std::string_view name, Event event);
  // For the handler of the exception that ends the run: whatever they throw is a message.
  void tell_exception() noexcept;
  void tell_end_after_failure() noexcept;

  void before_backward(std::int64_t micro_batch) override;
  void after_backward(std::int64_t micro_batch) override;
  void out_of_memory(const std::exception& error) override;
  void before_optimizer_step() override;
  void after_optimizer_step() override;

  // What this rank's callbacks ask for; what a rank has told stays asked for until all have heard it.
  const LoopWishes& wishes() const { return wishes_; }
  // What ranks have agreed on. Where they stop, stop_reason() says why, on every rank.
  void hear(const LoopWishes& agreed);
  const std::string& stop_reason() const { return stop_reason_; }
  // Exchanges wishes with all ranks at once, and hears them. Asks for nothing where there is no callback.
  LoopWishes agree();
  // Why a callback of this rank has failed; empty: none has.
  const std::string& failure() const { return failure_; }
  ErrorKind failure_kind() const { return failure_kind_; }

  // What was logged since the last call.
  std::vector<std::pair<std::string, double>> take_logged() { return std::exchange(logged_, {}); }

  // What they keep: numbers by name, for TrainState, where they are compared among the ranks, and tensors. Every rank
  // calls it.
  Json save() const;
  std::vector<SavedBeside> tensors() const;
  // Gives back what the checkpoint has. Every rank calls it, with the engine's numbers loaded.
  void load(const Checkpoint& checkpoint);

  const LoopState& state() const override { return state_; }
  int rank() const override { return site_.ranks.rank(); }
  int size() const override { return site_.ranks.size(); }
  const std::string& run_folder() const override { return site_.run_folder; }
  const std::string& config() const override { return site_.config; }
  const Context& context() const override { return site_.engine.context(); }
  void message(LogLevel level, std::string_view text) override { site_.observer.on_message(level, text); }
  Sharded& engine() override { return site_.engine; }
  Tensor taken() const override { return site_.engine.taken(); }
  void ask_stop(std::string_view reason) override;
  void ask_evaluation() override { wishes_.evaluate = true; }
  void ask_checkpoint() override { wishes_.save = true; }
  void set_rate_factor(double factor) override;
  void log(std::string_view name, double value) override;
  void together(const std::function<void()>& f) override;
  Communicator& ranks() override { return site_.ranks; }

 private:
  struct Listed {
    std::shared_ptr<Callback> callback;
    bool has_failed = false;
  };
  template <class F>
  void for_each(std::string_view event, const F& f);
  template <class F>
  void tell_quietly(std::string_view event, const F& f) noexcept;
  void note_failure(const Callback& callback, std::string_view event, const char* what, ErrorKind kind);

  std::vector<Listed> callbacks_;
  Site site_;
  LoopState state_;
  LoopWishes wishes_;
  std::string own_reason_, stop_reason_;
  std::string failure_;
  ErrorKind failure_kind_ = ErrorKind::internal;
  std::vector<std::pair<std::string, double>> logged_;
};

}  // namespace keel
