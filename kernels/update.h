#pragma once
// What an optimizer does to numbers: AdamW and SGD on flat ranges, norms, finite checks.

#include "keel/runtime/tensor.h"

namespace keel {

// AdamW (Loshchilov and Hutter 2019) as PyTorch computes it, on flat dense tensors of n elements:
//   g = gradient * gradient_scale; p *= 1 - lr * weight_decay; m, v moving averages;
//   p -= lr / bias1 * m / (sqrt(v / bias2) + epsilon), bias_i = 1 - beta_i^step.
struct AdamWArgs {
  Tensor parameter;  // the model's copy, any floating dtype; written
  Tensor master;     // f32; undefined when `parameter` is f32 (or f64) itself
  Tensor gradient;   // f32 or the parameter's dtype
  Tensor m, v;       // f32 (f64 for an f64 parameter)
  double lr, beta1, beta2, epsilon, weight_decay;
  std::int64_t step;      // counts good steps from 1
  double gradient_scale;  // clip factor / loss scale
};
// SGD with momentum and Nesterov as PyTorch computes it; `momentum_buffer` undefined when momentum is 0.
struct SgdArgs {
  Tensor parameter, master, gradient, momentum_buffer;
  double lr, momentum, dampening, weight_decay;
  bool nesterov;
  std::int64_t step;
  double gradient_scale;
};

namespace kernels {

void adamw(const AdamWArgs& args);
void sgd(const SgdArgs& args);
// Sum of squares in fp64, by fixed chunks in order: the same bits at any thread count.
double sum_of_squares(const Tensor& x);
bool all_finite(const Tensor& x);

}  // namespace kernels
}  // namespace keel
