// The matrix products of a GPT's training step: keel's own kernels against oneDNN, and both against the
// ceiling of this processor, a loop of fused multiply-adds that touches registers only.
//
// usage: bench_matmul [threads] [seconds per product] [f32|bf16]

#include "keel/kernels/matmul.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/measure.h"
#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/microkernel.h"
#include "keel/runtime/parallel.h"
#include "tests/support.h"

namespace keel::bench {
namespace {

// Multiply-adds per second of all threads with operands in registers.
template <class P>
double ceiling(const Context& context, double seconds) {
  using Sum = typename P::Sum;
  constexpr int kChains = 12;  // more than latency times multipliers
  constexpr std::int64_t kSteps = 200000;
  const auto burn = [&] {
    parallel_for(context, context.threads(), 1, [&](std::int64_t, std::int64_t) {
      cpu::Vector<Sum> sums[kChains] = {};
      cpu::Vector<typename P::Unit> right = {};
      for (std::int64_t s = 0; s < kSteps; ++s) {
#pragma GCC unroll 16
        for (int i = 0; i < kChains; ++i) {
          sums[i] = P::multiply_add(typename P::Unit{}, right, sums[i]);
          asm volatile("" : "+v"(sums[i]));  // keep the loop
        }
      }
    });
  };
  const double products = static_cast<double>(context.threads()) * kSteps * kChains * cpu::kLanes<Sum> * P::kDepth;
  return products / race({burn}, seconds).front().best;
}

struct Layer {
  std::int64_t rows, out, in;  // y (rows, out) = x (rows, in) W^T
};
constexpr Layer kLayers[] = {
    {768, 384, 128},   {768, 128, 128},  {768, 512, 128},   {768, 128, 512},   {768, 65, 128},
    {4096, 1152, 384}, {4096, 384, 384}, {4096, 1536, 384}, {4096, 384, 1536}, {4096, 65, 384},
    {1024, 2304, 768}, {1024, 768, 768}, {1024, 3072, 768}, {1024, 768, 3072}, {1024, 50257, 768},
};

// y = x W^T (+ bias, GELU); dX = dY W; dW = dY^T X into f32.
enum class Product { forward, gelu, grad_x, grad_w };
constexpr std::pair<Product, const char*> kProducts[] = {
    {Product::forward, "y"}, {Product::gelu, "gelu"}, {Product::grad_x, "dX"}, {Product::grad_w, "dW"}};

Contestant product_of(const Context& context, const Layer& layer, Product product, DType dtype) {
  const Tensor x = testing::uniform_tensor(context, {layer.rows, layer.in}, 1, dtype);
  const Tensor weight = testing::uniform_tensor(context, {layer.out, layer.in}, 2, dtype);
  const Tensor grad = testing::uniform_tensor(context, {layer.rows, layer.out}, 3, dtype);
  const Tensor bias = testing::uniform_tensor(context, {layer.out}, 4, dtype);
  const Tensor grad_weight = empty(context, {layer.out, layer.in}, DType::f32);
  switch (product) {
    case Product::forward: return [=] { kernels::matmul(x, weight.transpose(0, 1)); };
    case Product::gelu:
      return [=] {
        Tensor before;
        kernels::matmul(x, weight.transpose(0, 1),
                        {.epilogue = Epilogue::bias_gelu, .bias = bias, .pre_activation = &before});
      };
    case Product::grad_x: return [=] { kernels::matmul(grad, weight); };
    default: return [=] { kernels::matmul(grad.transpose(0, 1), x, {.into = grad_weight}); };
  }
}

void run(int threads, double seconds, DType dtype) {
  const Context own = testing::context(threads, KernelChoice::plain);
  const Context other = testing::context(threads);
  KernelTable table = kernel_table(other);
  if (cpu::onednn_entry() != nullptr) table.matmul = cpu::onednn_entry();
  other.kernel_table() = &table;
  const double peak =
      dtype == DType::bf16 ? ceiling<cpu::Product<bf16>>(own, 0.3) : ceiling<cpu::Product<float>>(own, 0.3);
  std::printf("%s, %d threads; own: %s; automatic would take: %s; ceiling %.0f GFLOP/s%s\n",
              std::string(name_of(dtype)).c_str(), own.threads(), cpu::plain_backend(dtype).c_str(),
              kernels::matmul_backend(other, dtype).c_str(), 2e-9 * peak,
              cpu::onednn_entry() == nullptr ? "; oneDNN was not built in: own twice" : "");
  std::printf("%21s %5s  %12s %14s  %10s %9s\n", "rows x out x in", "", "own/ceiling", "oneDNN/ceiling", "own/oneDNN",
              "(median)");
  for (const Layer& layer : kLayers) {
    for (const auto& [product, name] : kProducts) {
      if (product == Product::gelu && layer.out != 4 * layer.in) continue;
      const auto times =
          race({product_of(own, layer, product, dtype), product_of(other, layer, product, dtype)}, seconds);
      const double products = static_cast<double>(layer.rows * layer.out * layer.in);
      std::printf("%6ld x %5ld x %4ld %5s  %12.2f %14.2f  %10.2f %9.2f\n", layer.rows, layer.out, layer.in, name,
                  products / times[0].best / peak, products / times[1].best / peak, times[1].best / times[0].best,
                  times[1].median / times[0].median);
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  // OpenMP's idle threads, which are oneDNN's, would spin on the processors that the other contestant needs. The
  // library reads this when it is loaded, so the program starts again.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) {
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv("/proc/self/exe", argv);
  }
  const int threads = argc > 1 ? std::atoi(argv[1]) : keel::default_threads();
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0.3;
  const std::string only = argc > 3 ? argv[3] : "";
  for (const keel::DType dtype : {keel::DType::f32, keel::DType::bf16})
    if (only.empty() || only == keel::name_of(dtype)) keel::bench::run(threads, seconds, dtype);
}
