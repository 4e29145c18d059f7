#include "keel/autograd/variable.h"

#include "keel/autograd/record.h"
#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

thread_local GradMode current_mode = GradMode::record;

}  // namespace

GradMode grad_mode() { return current_mode; }
NoGrad::NoGrad() : previous_(current_mode) { current_mode = GradMode::off; }
NoGrad::~NoGrad() { current_mode = previous_; }
WithGrad::WithGrad() : previous_(current_mode) { current_mode = GradMode::record; }
WithGrad::~WithGrad() { current_mode = previous_; }

void Leaf::accumulate(Tensor contribution) {
  const bool already_there =
      grad.defined() && contribution.storage() == grad.storage() && contribution.offset() == grad.offset();
  if (!already_there) {
    if (assigned) {
      if (has_grad) kernels::accumulate(grad, contribution);
      else kernels::copy_into(grad, contribution);
    } else if (has_grad) {
      kernels::accumulate(grad, contribution);
    } else {
      // Kept without a copy only when nobody else can see the memory.
      contribution = kernels::cast(contribution, dtype);
      const bool sole_owner = contribution.storage().use_count() == 1 && contribution.is_contiguous();
      grad = sole_owner ? std::move(contribution) : kernels::clone(contribution);
    }
  }
  has_grad = true;
}

Variable::Variable(Tensor value, bool requires_grad) : value_(std::move(value)) {
  if (!requires_grad) return;
  KEEL_CHECK(is_floating(value_.dtype()), "integers have no gradient: ", value_, " cannot require one");
  leaf_ = std::make_shared<Leaf>();
  leaf_->shape = value_.shape();
  leaf_->dtype = value_.dtype();
}

Variable Variable::from_leaf(Tensor value, std::shared_ptr<Leaf> leaf) {
  Variable variable(std::move(value));
  variable.leaf_ = std::move(leaf);
  return variable;
}

Variable Variable::from_node(Tensor value, std::shared_ptr<Node> node, int output_index) {
  Variable variable(std::move(value));
  variable.node_ = std::move(node);
  variable.output_index_ = output_index;
  return variable;
}

Tensor Variable::grad() const {
  KEEL_CHECK(node_ == nullptr, "only leaves keep a gradient; this ", value_, " was computed by ", node_->name());
  return leaf_ && leaf_->has_grad ? leaf_->grad : Tensor();
}

void Variable::zero_grad() const {
  if (!leaf_) return;
  leaf_->has_grad = false;
  if (!leaf_->assigned) leaf_->grad = Tensor();
}

}  // namespace keel
