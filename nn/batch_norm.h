#pragma once
// Batch normalisation: a layer that keeps buffers.

#include <cstdint>

#include "keel/nn/buffer.h"
#include "keel/nn/layers.h"

namespace keel {

struct BatchNormOptions {
  double epsilon = 1e-5;
  double momentum = 0.1;  // the share of a step in the running statistics, in (0, 1]
  bool affine = true;     // whether there are weight and bias
};

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias for x: (rows, ..., width), over all but the last dimension
// (Ioffe and Szegedy 2015). Training takes mean and variance of the micro-batch, in fp32 (fp64 in fp64); evaluation the
// running ones, "running_mean" and "running_var", whose variance is divided by n - 1, as in PyTorch. Every rank
// normalises each micro-batch by itself, so other micro-batches are another training. One value alone cannot be
// normalised: an Error while training.
class BatchNorm : public Layer {
 public:
  Parameter weight, bias;            // (width), or absent
  Buffer running_mean, running_var;  // (width)
  double epsilon;
  explicit BatchNorm(std::int64_t width, const BatchNormOptions& options = {});
  Variable forward(const Variable& x, Forward& pass) const override;
  void visit(Visitor& v) override;

 private:
  std::int64_t width_;
};

}  // namespace keel
