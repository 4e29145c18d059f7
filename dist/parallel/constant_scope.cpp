#include "keel/dist/parallel/constant_scope.h"

namespace keel {

ConstantScope::ConstantScope(Sharded& engine) : engine_(engine) {
  for (const auto& unit : engine.units()) {
    if (!unit->trainable()) continue;
    for (const Segment& segment : unit->layout().segments) {
      Variable& variable = segment.parameter->variable;
      parameters_.emplace_back(segment.parameter.get(), variable);
      variable = variable.detach();
    }
  }
}

ConstantScope::~ConstantScope() {
  for (auto& [state, variable] : parameters_) state->variable = std::move(variable);
  try {
    engine_.release_weights();
  } catch (const Error&) {}  // the ranks have failed, and every later call of the communicator says so
}

}  // namespace keel
