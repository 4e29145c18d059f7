#include "keel/dist/parallel/trace_modules.h"

#include <string>
#include <utility>

#include "keel/autograd/variable.h"

namespace keel {

// What hooks and observers share; without a trace they do nothing.
struct TracedModules::State {
  struct Unit {
    std::string forward, backward;
    std::size_t leaves = 0, ready = 0;  // trainable parameters, and those whose gradients are there
  };
  Trace* trace;
  std::vector<Unit> units = {};
  std::int64_t backward_begins = 0;

  void gradient_ready(std::size_t index) {
    Unit& unit = units[index];
    if (trace == nullptr || ++unit.ready < unit.leaves) return;
    unit.ready = 0;
    trace->add(TraceRow::compute, unit.backward, backward_begins);
    backward_begins = Trace::now();
  }
};

class TracedModules::Observer : public ForwardObserver {
 public:
  Observer(std::shared_ptr<State> state, std::size_t unit) : state_(std::move(state)), unit_(unit) {}
  void forward_begins(const Module&) override { begin_ = Trace::now(); }
  void forward_ends(const Module&) noexcept override {
    State::Unit& unit = state_->units[unit_];
    state_->trace->add(TraceRow::compute, unit.forward, begin_);
    unit.ready = 0;
    state_->backward_begins = Trace::now();
  }

 private:
  std::shared_ptr<State> state_;
  std::size_t unit_;
  std::int64_t begin_ = 0;
};

TracedModules::TracedModules(Module& model, Trace& trace) : state_(std::make_shared<State>(State{.trace = &trace})) {
  for_each_module(model, [&](const std::string& path, Module& module) {
    if (path.empty() || module.is_unit()) watch(module, path);
  });
}

void TracedModules::watch(Module& module, const std::string& path) {
  const std::size_t index = state_->units.size();
  const auto observer = std::make_shared<Observer>(state_, index);
  module.subscribe(observer);
  observers_.emplace_back(&module, observer);
  State::Unit unit{.forward = path.empty() ? "forward" : "forward " + path, .backward = "backward " + path};
  // The root's parameters finish in no unit's place; what they cost is part of the spans around them.
  if (!path.empty())
    for_each_parameter(module, [&](const std::string&, Parameter& parameter) {
      if (!parameter.variable().requires_grad()) return;
      ++unit.leaves;
      leaves_.push_back(parameter.variable().leaf());
      leaves_.back()->when_ready(this, [state = state_, index](BackwardPass&) { state->gradient_ready(index); });
    });
  state_->units.push_back(std::move(unit));
}

TracedModules::~TracedModules() {
  for (const auto& [module, observer] : observers_) module->unsubscribe(observer);
  for (const auto& leaf : leaves_) leaf->forget_hooks(this);
  state_->trace = nullptr;
}

}  // namespace keel
