#pragma once
// A layer with a buffer that any number of rows can train.

#include "keel/autograd/functions.h"
#include "keel/nn/buffer.h"
#include "keel/nn/layers.h"

namespace keel::testing {

// x: (..., width) without the mean of what came in earlier steps.
class Centring : public Layer {
 public:
  Buffer middle;  // (width)
  explicit Centring(std::int64_t width) : middle(Buffer::moving_average({width}, 0.3)) {}
  Variable forward(const Variable& x, Forward& pass) const override {
    const std::int64_t rows = x.value().numel() / product(middle.shape());
    middle.observe(pass, mean(view(x, {rows, product(middle.shape())}), {0}).value(), rows);
    return sub(x, cast(Variable(middle.value()), x.value().dtype()));
  }
  void visit(Visitor& v) override { v("middle", middle); }
};

}  // namespace keel::testing
