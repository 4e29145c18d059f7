// Matrix products: keel's own kernel against the library's, at the shapes of a GPT-2's training step.

#include <array>

#include "bench/gpu/bench.h"
#include "keel/kernels/matmul.h"
#include "keel/kernels/table.h"

namespace keel::bench {
namespace {

struct Product {
  std::string name;
  std::int64_t m, n, k;
  bool a_transposed, b_transposed;  // as the operand lies in memory
  double flops() const { return 2.0 * static_cast<double>(m * n * k); }
};

// The three products of a linear layer (out, in) for `rows` tokens.
void add_layer(std::vector<Product>& products, const std::string& name, std::int64_t rows, std::int64_t out,
               std::int64_t in) {
  products.push_back({name + ", forward", rows, out, in, false, true});
  products.push_back({name + ", input gradient", rows, in, out, false, false});
  products.push_back({name + ", weight gradient", out, in, rows, true, false});
}

std::vector<Product> all_products(const GpuOptions& options) {
  if (options.rehearse) {
    std::vector<Product> products;
    add_layer(products, "tiny", 24, 40, 16);
    return products;
  }
  std::vector<Product> products = {{"4096 x 4096 x 4096", 4096, 4096, 4096, false, true}};
  const std::int64_t rows = 32 * 1024, width = 768, vocabulary = 50304;
  add_layer(products, "gpt2 c_fc", rows, 4 * width, width);
  if (options.quick) return products;
  add_layer(products, "gpt2 c_attn", rows, 3 * width, width);
  add_layer(products, "gpt2 attn c_proj", rows, width, width);
  add_layer(products, "gpt2 mlp c_proj", rows, width, 4 * width);
  add_layer(products, "gpt2 head", rows, vocabulary, width);
  return products;
}

Tensor operand(GpuBench& bench, std::int64_t rows, std::int64_t cols, bool transposed) {
  if (!transposed) return bench.random(bench.plain(), {rows, cols}, DType::bf16);
  return bench.random(bench.plain(), {cols, rows}, DType::bf16).transpose(0, 1);
}

Json measure(GpuBench& bench, const Product& product) {
  const Tensor a = operand(bench, product.m, product.k, product.a_transposed);
  const Tensor b = operand(bench, product.k, product.n, product.b_transposed);
  const Tensor out = empty(bench.plain(), {product.m, product.n}, DType::bf16);
  const auto on = [&](const Context& context) -> Contestant {
    const std::array<Tensor, 3> x = {GpuBench::shared_with(context, a), GpuBench::shared_with(context, b),
                                     GpuBench::shared_with(context, out)};
    return {context, [x] { kernels::matmul(x[0], x[1], {.into = x[2]}); }};
  };
  const bool library = kernel_table(bench.plain()).matmul != kernel_table(bench.automatic()).matmul;
  std::vector<Contestant> contestants = {on(bench.plain())};
  if (library) contestants.push_back(on(bench.automatic()));
  const std::vector<double> seconds = bench.race(contestants);
  const auto tflops = [&](double time) { return 1e-12 * product.flops() / time; };
  Json line = {{"m", product.m}, {"n", product.n}, {"k", product.k}, {"own_tflops", tflops(seconds[0])}};
  if (bench.peak() > 0) line["own_of_peak"] = product.flops() / seconds[0] / bench.peak();
  line["library"] = library ? kernels::matmul_backend(bench.automatic(), DType::bf16) : "none in this build";
  if (library) {
    line["library_tflops"] = tflops(seconds[1]);
    line["own_of_library"] = seconds[1] / seconds[0];
    if (bench.peak() > 0) line["library_of_peak"] = product.flops() / seconds[1] / bench.peak();
  }
  return line;
}

}  // namespace

void bench_products(GpuBench& bench) {
  for (const Product& product : all_products(bench.options()))
    bench.run("matmul", product.name, [&] { return measure(bench, product); });
}

}  // namespace keel::bench
