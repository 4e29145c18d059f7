#include "keel/models/causal_model.h"

#include "keel/autograd/functions.h"
#include "keel/autograd/linear_cross_entropy.h"
#include "keel/autograd/matmul.h"
#include "keel/runtime/error.h"

namespace keel {

Variable CausalModel::operator()(const Tensor& tokens, Forward& pass, const PackedDocuments& documents) const {
  const Scope scope(*this);
  return linear(states(tokens, pass, documents), head(), {});
}

CrossEntropyLoss CausalModel::loss(const Tensor& tokens, const Tensor& targets, Forward& pass,
                                   const PackedDocuments& documents) const {
  const Scope scope(*this);
  return loss_of(states(tokens, pass, documents), targets);
}

CrossEntropyLoss CausalModel::loss_of(const Variable& states, const Tensor& targets) const {
  return linear_cross_entropy(states, head(), {}, targets, {.kept_bytes = kLogitsWorthKeeping});
}

Variable CausalModel::logits_at(const Tensor& positions, const Tensor& tokens, Forward& pass,
                                const PackedDocuments& documents) const {
  const Scope scope(*this);
  const Variable all = states(tokens, pass, documents);
  return linear(index_select(view(all, {-1, all.dim(-1)}), 0, positions), head(), {});
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
  return linear(Variable(last), head(), {}).value().select(1, 0);
}

}  // namespace keel
