#pragma once
// The engine: runs recorded operations backward, in an order that every rank agrees on.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "keel/autograd/record.h"

namespace keel {

// One run of the engine, as hooks see it.
class BackwardPass {
 public:
  // Gives a gradient to the leaves of `owner` and to those that nobody owns.
  explicit BackwardPass(const void* owner);
  BackwardPass(const BackwardPass&) = delete;
  BackwardPass& operator=(const BackwardPass&) = delete;

  // The one that runs on this thread; null where none does.
  static BackwardPass* current();
  std::uint64_t id() const { return id_; }  // no other pass of the process has it
  bool gives_gradient_to(const Leaf& leaf) const { return leaf.owner == nullptr || leaf.owner == owner_; }
  // Runs `callback` after the last gradient of this pass, in order of registration.
  void at_end(std::function<void()> callback) { callbacks_.push_back(std::move(callback)); }

 private:
  friend void backward(std::span<const Variable>, std::span<const Tensor>, const void*);
  const void* owner_;
  std::uint64_t id_;
  std::vector<std::function<void()>> callbacks_;
};

// Adds d(loss)/d(leaf) * seed to the gradient of every leaf that the loss depends on. `loss` has one
// element. The graph is consumed: a second backward through it is an Error, as is a derivative of a
// derivative. A loss in 16 bits that cannot hold the seed must come from a sum, a mean, a cast, a view or an
// elementwise operation, which take it in fp32; another one is an Error.
void backward(const Variable& loss, double seed = 1);
// The same from several outputs with given gradients, shaped like the outputs. Leaves that belong to somebody else than
// `owner` are constants. So is what depends on nothing else: the pass does not go through it, and does not consume it.
// An output that is a constant is an Error.
void backward(std::span<const Variable> outputs, std::span<const Tensor> gradients, const void* owner = nullptr);

// The gradient that begins a pass from `loss`: its shape, full of `seed`. In the loss's dtype; but where that has 16
// bits, in fp32 if the operation that computed the loss takes it, if the loss cannot hold the seed, or if it `changes`.
Tensor make_seed(const Variable& loss, double seed, bool changes = false);

// For checkpoint(): a run inside the current pass adds to the same leaves but fires no hooks, since that pass will.
void backward_inside(std::span<const Variable> outputs, std::span<const Tensor> gradients);

}  // namespace keel
