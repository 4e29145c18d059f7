#pragma once
// A model with buffers: batch norm between units, and a table that nothing changes.

#include "keel/nn/batch_norm.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel::testing {

struct ObservingNet : Module {
  UnitLayer first, last;
  BatchNorm norm{kWidth};
  Buffer table;
  ObservingNet() { table = Buffer::constant({3}, 2); }
  Variable operator()(const Tensor& x) const {
    const Scope scope(*this);
    Forward pass{.training = true, .random = {}, .sample_ids = {}, .observes = true};
    return last(norm(first(Variable(x)), pass));
  }
  void visit(Visitor& v) override {
    v("first", first);
    v("norm", norm);
    v("last", last);
    v("table", table);
  }
};

}  // namespace keel::testing
