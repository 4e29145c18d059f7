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
  KEEL_CHECK(
      !sparse, "the gradient of ", name.empty() ? "a table" : name, ", of shape ", shape,
      ", is kept as rows, so only look-ups (embedding) may use it; another operation has given all of it: keep a "
      "dense gradient (sparse = false)");
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

void Leaf::accumulate_rows(const Tensor& ids, const Tensor& values) {
  if (!has_grad) rows = RowGradient(values.context(), shape, dtype);
  has_grad = true;
  if (takes_rows) rows.add(ids, values);
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
  KEEL_CHECK(!leaf_ || !leaf_->sparse, "the gradient of this ", value_, " is kept as rows: row_grad()");
  return leaf_ && leaf_->has_grad ? leaf_->grad : Tensor();
}

RowGradient Variable::row_grad() const {
  KEEL_CHECK(leaf_ && leaf_->sparse, "the gradient of this ", value_, " is not kept as rows");
  return leaf_->has_grad ? leaf_->rows : RowGradient();
}

void Variable::zero_grad() const {
  if (!leaf_) return;
  leaf_->has_grad = false;
  leaf_->rows = RowGradient();
  if (!leaf_->assigned) leaf_->grad = Tensor();
}

}  // namespace keel
