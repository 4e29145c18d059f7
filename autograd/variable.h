#pragma once
// A variable: a tensor that remembers where it came from, so that gradients can flow back to it.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "keel/autograd/row_gradient.h"
#include "keel/runtime/tensor.h"

namespace keel {

class Node;
class BackwardPass;

// Called once per backward pass, when the last contribution to a leaf's gradient has landed.
using ReadyHook = std::function<void(BackwardPass&)>;

// The gradient side of a leaf: where its gradient lives and who waits for it. In a backward pass of
// somebody else than its owner a leaf is a constant.
struct Leaf {
  std::string name;  // for messages; may be empty
  Dims shape;
  DType dtype = DType::f32;  // of the gradient, unless a buffer was assigned
  Tensor grad;               // undefined until written, unless a buffer was assigned
  bool has_grad = false;     // whether `grad` holds a contribution since the last zero_grad
  bool assigned = false;     // `grad` is a view of a buffer that somebody else owns
  // The gradient of a table is kept as rows, not in `grad`. Only look-ups may use such a leaf.
  bool sparse = false;
  RowGradient rows;
  bool takes_rows = true;  // false: rows that are looked up do not count as used
  // Whose backward passes alone give it a gradient: an engine's. Null: every pass does.
  const void* owner = nullptr;

  // Has `hook` called from now on, until its owner asks to forget it. Hooks run in the order in which they came.
  void when_ready(const void* watcher, ReadyHook hook) { on_ready_.push_back({watcher, std::move(hook)}); }
  // The same for passes in which the leaf is a constant: called once, when they need its value no more.
  void when_passed(const void* watcher, ReadyHook hook) { on_passed_.push_back({watcher, std::move(hook)}); }
  void forget_hooks(const void* watcher) {
    for (std::vector<OwnedHook>* hooks : {&on_ready_, &on_passed_})
      std::erase_if(*hooks, [watcher](const OwnedHook& hook) { return hook.owner == watcher; });
  }
  void tell_ready(BackwardPass& pass) const {
    for (const OwnedHook& hook : on_ready_) hook.call(pass);
  }
  void tell_passed(BackwardPass& pass) const {
    for (const OwnedHook& hook : on_passed_) hook.call(pass);
  }

  // Adds one contribution (of `shape`), converting the dtype. May keep `contribution` itself.
  void accumulate(Tensor contribution);
  // The same of rows: values (ids..., width) for the rows `ids`.
  void accumulate_rows(const Tensor& ids, const Tensor& values);

 private:
  struct OwnedHook {
    const void* owner;
    ReadyHook call;
  };
  std::vector<OwnedHook> on_ready_, on_passed_;
};

// A handle: copies refer to the same node of the same graph.
class Variable {
 public:
  Variable() = default;
  // A leaf. Integer tensors cannot require a gradient.
  explicit Variable(Tensor value, bool requires_grad = false);

  bool defined() const { return value_.defined(); }
  const Tensor& value() const { return value_; }
  const Dims& shape() const { return value_.shape(); }
  std::int64_t dim(int i) const { return value_.dim(i); }
  DType dtype() const { return value_.dtype(); }
  const Context& context() const { return value_.context(); }
  bool requires_grad() const { return node_ != nullptr || leaf_ != nullptr; }

  // The accumulated gradient of a leaf; undefined when none has landed since zero_grad(). Throws an Error where the
  // gradient is kept as rows.
  Tensor grad() const;
  // The same of a leaf whose gradient is kept as rows.
  RowGradient row_grad() const;
  // Forgets the gradient; the next contribution overwrites instead of adding.
  void zero_grad() const;
  // The same numbers outside the graph.
  Variable detach() const { return Variable(value_); }

  // The pieces below serve record(), the engine and those who attach buffers and hooks to leaves.
  const std::shared_ptr<Node>& node() const { return node_; }
  int output_index() const { return output_index_; }
  const std::shared_ptr<Leaf>& leaf() const { return leaf_; }
  static Variable from_leaf(Tensor value, std::shared_ptr<Leaf> leaf);
  static Variable from_node(Tensor value, std::shared_ptr<Node> node, int output_index);

 private:
  Tensor value_;
  std::shared_ptr<Node> node_;  // who computed it; null for leaves
  int output_index_ = 0;
  std::shared_ptr<Leaf> leaf_;  // set for leaves that require a gradient
};

// What record() does on this thread.
enum class GradMode : unsigned char { record, off };
GradMode grad_mode();

// Within this scope nothing is recorded.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  GradMode previous_;
};

// Undoes an enclosing NoGrad (recomputation during backward needs it).
class WithGrad {
 public:
  WithGrad();
  ~WithGrad();
  WithGrad(const WithGrad&) = delete;
  WithGrad& operator=(const WithGrad&) = delete;

 private:
  GradMode previous_;
};

}  // namespace keel
