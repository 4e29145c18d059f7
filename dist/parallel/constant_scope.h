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
  explicit ConstantScope(Sharded& engine);
  ~ConstantScope();
  ConstantScope(const ConstantScope&) = delete;
  ConstantScope& operator=(const ConstantScope&) = delete;

 private:
  Sharded& engine_;
  std::vector<std::pair<Parameter::State*, Variable>> parameters_;
};

}  // namespace keel
