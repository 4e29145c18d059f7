#include "keel/models/causal_model.h"

#include "keel/autograd/functions.h"
#include "keel/autograd/linear_cross_entropy.h"
#include "keel/autograd/matmul.h"
#include "keel/runtime/error.h"

namespace keel {

Variable CausalModel::operator()(const Tensor& tokens, Forward& pass, const PackedDocuments& documents) const {
  const Scope scope(*this);
  return head()(states(tokens, pass, documents), pass);
}

CrossEntropyLoss CausalModel::loss(const Tensor& tokens, const Tensor& targets, Forward& pass,
                                   const PackedDocuments& documents) const {
  const Scope scope(*this);
  return loss_of(states(tokens, pass, documents), targets, pass);
}

CrossEntropyLoss CausalModel::loss_of(const Variable& states, const Tensor& targets, Forward& pass) const {
  const LinearOperands last = head().operands(states, pass);
  return linear_cross_entropy(last.x, last.weight, {}, targets, {.kept_bytes = kLogitsWorthKeeping});
}

Variable CausalModel::logits_at(const Tensor& positions, const Tensor& tokens, Forward& pass,
                                const PackedDocuments& documents) const {
  const Scope scope(*this);
  const Variable all = states(tokens, pass, documents);
  KEEL_CHECK(!pass.training || head().adapters.empty() || head().adapters.front().dropout == 0,
             "logits of some positions alone are not trained with dropout of an adapter of the head");
  return head()(index_select(view(all, {-1, all.dim(-1)}), 0, positions), pass);
}

Tensor CausalModel::next_logits(const Tensor& tokens, KeyValueCache& cache) const {
  return next_logits(tokens, CachedRows(cache));
}

Tensor CausalModel::next_logits(const Tensor& tokens, CachedRows rows) const {
  const NoGrad no_grad;
  const Scope scope(*this);
  const Variable all = next_states(tokens, rows);
  rows.advance(tokens.dim(1));
  const Tensor last = all.value().slice(1, tokens.dim(1) - 1, tokens.dim(1));
  return head()(Variable(last)).value().select(1, 0);
}

}  // namespace keel
