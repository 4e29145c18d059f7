#pragma once
// What a callback sees of a run that a test stages, and what it has asked for.

#include <functional>
#include <string>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/trainer/loop_view.h"
#include "tests/support.h"

namespace keel::testing {

class StagedView : public LoopView {
 public:
  explicit StagedView(std::string folder = {}, int rank = 0, Sharded* engine = nullptr)
      : folder_(std::move(folder)), rank_(rank), engine_(engine) {}
  const LoopState& state() const override { return now; }
  int rank() const override { return rank_; }
  int size() const override { return 2; }
  const std::string& run_folder() const override { return folder_; }
  const std::string& config() const override { return config_; }
  const Context& context() const override { return context_; }
  void message(LogLevel, std::string_view text) override { told += concat(text, '\n'); }
  Sharded& engine() override {
    KEEL_CHECK(engine_ != nullptr, "nothing of the engine is staged");
    return *engine_;
  }
  Tensor taken() const override { return was_taken; }
  void ask_stop(std::string_view reason) override { told += concat("stop: ", reason, '\n'); }
  void ask_evaluation() override { told += "evaluate\n"; }
  void ask_checkpoint() override { told += concat("checkpoint of ", now.step, '\n'); }
  void set_rate_factor(double factor) override { told += concat("rates times ", factor, " in ", now.step, '\n'); }
  void log(std::string_view name, double value) override { told += concat(name, ' ', value, '\n'); }
  void together(const std::function<void()>& f) override { f(); }
  Communicator& ranks() override { throw Error("there are no ranks"); }

  // Since the last call.
  std::string take_told() { return std::exchange(told, {}); }

  LoopState now;
  Tensor was_taken;
  std::string told;  // lines

 private:
  std::string folder_, config_;
  int rank_;
  Sharded* engine_;
  Context context_ = testing::context(1);
};

}  // namespace keel::testing
