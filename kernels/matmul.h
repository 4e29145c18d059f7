#pragma once
// Matrix products, with bias and GELU fused behind them.

#include <string>

#include "keel/runtime/tensor.h"

namespace keel {

enum class Epilogue : unsigned char { none, bias, bias_gelu };  // gelu: the tanh approximation

// out = epilogue(alpha * a b) or out += a b.
struct MatmulArgs {
  Tensor a;    // (batch..., m, k), each matrix dense or transposed; batch strides free
  Tensor b;    // (batch..., k, n), likewise
  Tensor out;  // (batch..., m, n); rows dense; f32, or the dtype of a
  float alpha = 1;
  bool accumulate = false;  // add to what `out` holds
  bool same_bits = false;   // see MatmulOptions
  Epilogue epilogue = Epilogue::none;
  Tensor bias = {};            // (n), the dtype of a
  Tensor pre_activation = {};  // optional with bias_gelu: a b + bias, shaped like out
};

struct MatmulOptions {
  Epilogue epilogue = Epilogue::none;
  Tensor bias = {};
  Tensor* pre_activation = nullptr;  // set to the value before GELU when given
  Tensor into = {};                  // write here instead of a new tensor
  bool accumulate = false;           // add to `into`
  float alpha = 1;
  // By keel's own kernel, whose bits are the same on devices of one kind. Otherwise the fastest is taken, which a rank
  // may find to be another one than its neighbour.
  bool same_bits = false;
};

namespace kernels {

// What multiplies matrices of this dtype in this context and why, in a line: "oneDNN 2.6.3 (AVX-512 bf16)".
std::string matmul_backend(const Context& context, DType dtype);

// a: (batch..., m, k) and b: (batch..., k, n) of one dtype; batch dimensions equal, or absent on one
// side. A transposed operand is a transposed view, e.g. matmul(x, weight.transpose(0, 1)). A 2-d `b` with a batched
// dense `a` is one flat product. Sums in fp32 (fp64 for f64); bf16 and f16 results rounded once.
Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});

}  // namespace kernels
}  // namespace keel
