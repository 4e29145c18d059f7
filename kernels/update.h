#pragma once
// What an optimizer does to numbers: AdamW and SGD on flat ranges, norms, finite checks.

#include "keel/kernels/step_state.h"
#include "keel/runtime/tensor.h"

namespace keel {

// AdamW (Loshchilov and Hutter 2019) as PyTorch computes it, on flat dense tensors of n elements:
//   g = gradient * gradient_scale; p *= 1 - lr * weight_decay; m, v moving averages;
//   p -= lr / bias1 * m / (sqrt(v / bias2) + epsilon), bias_i = 1 - beta_i^steps,
// where gradient_scale, lr and steps are those of the step state. Nothing changes when it says that the step is not
// taken.
struct AdamWArgs {
  Tensor parameter;  // the model's copy, any floating dtype; written
  Tensor master;     // f32; undefined when `parameter` is f32 (or f64) itself; see `stochastic_rounding`
  Tensor gradient;   // f32 or the parameter's dtype
  Tensor m, v;       // f32 (f64 for an f64 parameter)
  Tensor step;       // a state that decide_step() has written
  double lr_factor = 1;
  double beta1, beta2, epsilon, weight_decay;
  // A bf16 or f16 parameter is rounded up or down at random (keel/kernels/stochastic_rounding.h), and needs no master:
  // without one it holds the weights itself. Its element i draws number first + i of the step's stream, so that the
  // bits do not depend on how the parameters are cut into ranges.
  bool stochastic_rounding = false;
  std::uint64_t seed = 0;
  std::int64_t first = 0;
};
// SGD with momentum and Nesterov as PyTorch computes it; `momentum_buffer` undefined when momentum is 0.
struct SgdArgs {
  Tensor parameter, master, gradient, momentum_buffer;
  Tensor step;
  double lr_factor = 1;
  double momentum, dampening, weight_decay;
  bool nesterov;
};

namespace kernels {

void adamw(const AdamWArgs& args);
void sgd(const SgdArgs& args);
// Sum of squares in fp64, by fixed chunks in order: the same bits at any thread count. Waits for the device.
double sum_of_squares(const Tensor& x);
bool all_finite(const Tensor& x);

}  // namespace kernels
}  // namespace keel
