#pragma once
// A callback that tells of the events that it sees.

#include <functional>
#include <string>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/trainer/callback.h"

namespace keel::testing {

// Calls a function at every event but for the begin and end of epochs.
class Everywhere : public Callback {
 public:
  using OnEvent = std::function<void(const std::string& event, LoopView& view)>;
  explicit Everywhere(OnEvent on_event, std::string name = "everywhere")
      : on_event_(std::move(on_event)), name_(std::move(name)) {}
  std::string_view name() const override { return name_; }
  void fit_begin(LoopView& v) override { on_event_("fit_begin", v); }
  void resumed(LoopView& v) override { on_event_("resumed", v); }
  void step_begin(LoopView& v) override { on_event_("step_begin", v); }
  void before_backward(LoopView& v) override { on_event_("before_backward", v); }
  void after_backward(LoopView& v) override { on_event_("after_backward", v); }
  void before_optimizer_step(LoopView& v) override { on_event_("before_optimizer_step", v); }
  void after_optimizer_step(LoopView& v) override { on_event_("after_optimizer_step", v); }
  void step_end(LoopView& v) override { on_event_("step_end", v); }
  void evaluation_begin(LoopView& v) override { on_event_("evaluation_begin", v); }
  void evaluation_end(LoopView& v, bool done) override { on_event_(done ? "evaluation_end" : "evaluation_failed", v); }
  void checkpoint_saved(LoopView& v, const std::string&, std::int64_t) override { on_event_("checkpoint_saved", v); }
  void exception(LoopView& v, const std::exception& error) override {
    on_event_(concat("exception ", error.what()), v);
  }
  void interrupt(LoopView& v) override { on_event_("interrupt", v); }
  void fit_end(LoopView& v) override { on_event_("fit_end", v); }

 protected:
  OnEvent on_event_;

 private:
  std::string name_;
};

}  // namespace keel::testing
