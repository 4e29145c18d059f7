#pragma once
// Spans of computing: a model's units, forward and backward.

#include <memory>
#include <vector>

#include "keel/dist/comm/trace.h"
#include "keel/nn/module.h"

namespace keel {

// Watches a model for as long as it lives; make it after the engine, which gives the parameters their memory. Records
// "forward h.3" from the beginning to the end of a unit's forward pass. Records "backward h.3" from the end of the unit
// before it in backward (or of the root's forward pass) until the last of its gradients is there. The root is
// "forward".
class TracedModules {
 public:
  TracedModules(Module& model, Trace& trace);
  ~TracedModules();
  TracedModules(const TracedModules&) = delete;
  TracedModules& operator=(const TracedModules&) = delete;

 private:
  class Observer;
  struct State;
  void watch(Module& module, const std::string& path);

  std::shared_ptr<State> state_;  // shared with hooks of parameters, which may live longer
  std::vector<std::pair<Module*, std::shared_ptr<ForwardObserver>>> observers_;
  std::vector<std::shared_ptr<Leaf>> leaves_;  // with a hook
};

}  // namespace keel
