// The matrix products of a GPT's training step: keel's own kernels in turn with oneDNN and with the ceiling.

#include "keel/kernels/matmul.h"

#include "bench/micro/micro.h"
#include "keel/kernels/cpu/backend.h"

namespace keel::bench {
namespace {

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
  const Tensor x = numbers(context, {layer.rows, layer.in}, dtype, 1);
  const Tensor weight = numbers(context, {layer.out, layer.in}, dtype, 2);
  const Tensor grad = numbers(context, {layer.rows, layer.out}, dtype, 3);
  const Tensor bias = numbers(context, {layer.out}, dtype, 4);
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

void measure(benchmark::State& state, const Layer& layer, Product product, DType dtype, int threads) {
  const Context own = Context::create({.threads = threads, .kernels = KernelChoice::plain});
  const Burn burn = burn_of(own, dtype);
  std::vector<Contestant> contestants = {product_of(own, layer, product, dtype), burn.run};
  const Context peer = Context::create({.threads = threads});
  KernelTable table = kernel_table(peer);
  if (cpu::onednn_entry() != nullptr) {
    table.matmul = cpu::onednn_entry();
    peer.kernel_table() = &table;
    contestants.push_back(product_of(peer, layer, product, dtype));
  }
  Race race(contestants);
  take_turns(state, race);
  const auto multiply_adds = static_cast<double>(layer.rows * layer.out * layer.in);
  const double peak = burn.multiply_adds / race.median(1);
  using benchmark::Counter;
  state.counters["flops"] = Counter(2 * multiply_adds, Counter::kIsIterationInvariantRate);
  state.counters["peak_flops"] = 2 * peak;
  state.counters["of_peak"] = multiply_adds / race.median(0) / peak;
  if (contestants.size() < 3) return;
  state.counters["onednn_of_peak"] = multiply_adds / race.median(2) / peak;
  state.counters["over_onednn"] = race.median(2) / race.median(0);
}

}  // namespace

void add_matmul(const Options& options) {
  const Context context = Context::create({.threads = options.threads});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    benchmark::AddCustomContext(concat("own products, ", dtype), cpu::plain_backend(dtype));
    benchmark::AddCustomContext(concat("keel takes, ", dtype), kernels::matmul_backend(context, dtype));
    for (const Layer& layer : kLayers) {
      for (const auto& [product, name] : kProducts) {
        if (product == Product::gelu && layer.out != 4 * layer.in) continue;
        add_benchmark(concat("matmul/", name, '/', dtype, '/', layer.rows, 'x', layer.out, 'x', layer.in),
                      [=, product = product](benchmark::State& state) {
                        measure(state, layer, product, dtype, options.threads);
                      });
      }
    }
  }
}

}  // namespace keel::bench
