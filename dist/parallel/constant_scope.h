#pragma once
// While another model is trained: a model whose parameters are constants.

#include <utility>
#include <vector>

#include "keel/dist/parallel/sharded.h"

namespace keel {

// While it lives, what the model computes records nothing for its parameters' sake: no activation is kept for their
// gradients, and what depends on them alone is no part of a graph. Gradients flow through to what does need one. At its
// end whole weights that passes have gathered are given back. Backward passes belong inside, as do their forward
// passes.
class ConstantScope {
 public:
  explicit ConstantScope(Sharded& engine) : engine_(engine) {
    for (const auto& unit : engine.units()) {
      if (!unit->trainable()) continue;
      for (const Segment& segment : unit->layout().segments) {
        Variable& variable = segment.parameter->variable;
        parameters_.emplace_back(segment.parameter.get(), variable);
        variable = variable.detach();
      }
    }
  }
  ~ConstantScope() {
    for (auto& [state, variable] : parameters_) state->variable = std::move(variable);
    try {
      engine_.release_weights();
    } catch (const Error&) {}  // the ranks have failed, and every later call of the communicator says so
  }
  ConstantScope(const ConstantScope&) = delete;
  ConstantScope& operator=(const ConstantScope&) = delete;

 private:
  Sharded& engine_;
  std::vector<std::pair<Parameter::State*, Variable>> parameters_;
};

}  // namespace keel
