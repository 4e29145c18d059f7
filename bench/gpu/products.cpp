// Matrix products: keel's own kernel against the library's, at the shapes of a GPT-2's training step, in bf16 and fp32.

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
  DType dtype = DType::bf16;
  double flops() const { return 2.0 * static_cast<double>(m * n * k); }
};

// The three products of a linear layer (out, in) for `rows` tokens.
void add_layer(std::vector<Product>& products, const std::string& name, std::int64_t rows, std::int64_t out,
               std::int64_t in) {
  products.push_back({name + ", forward", rows, out, in, false, true});
  products.push_back({name + ", input gradient", rows, in, out, false, false});
  products.push_back({name + ", weight gradient", out, in, rows, true, false});
}

// And the first `count` of them in fp32.
std::vector<Product> in_fp32_too(std::vector<Product> products, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Product product = products[i];
    product.name += ", fp32";
    product.dtype = DType::f32;
    products.push_back(product);
  }
  return products;
}

std::vector<Product> all_products(const GpuOptions& options) {
  if (options.rehearse) {
    std::vector<Product> products;
    add_layer(products, "tiny", 24, 40, 16);
    return in_fp32_too(products, products.size());
  }
  std::vector<Product> products = {{"4096 x 4096 x 4096", 4096, 4096, 4096, false, true}};
  const std::int64_t rows = 32 * 1024, width = 768, vocabulary = 50304;
  add_layer(products, "gpt2 c_fc", rows, 4 * width, width);
  products = in_fp32_too(products, options.quick ? 1 : products.size());
  if (options.quick) return products;
  add_layer(products, "gpt2 c_attn", rows, 3 * width, width);
  add_layer(products, "gpt2 attn c_proj", rows, width, width);
  add_layer(products, "gpt2 mlp c_proj", rows, width, 4 * width);
  add_layer(products, "gpt2 head", rows, vocabulary, width);
  return products;
}

Tensor operand(GpuBench& bench, std::int64_t rows, std::int64_t cols, bool transposed, DType dtype) {
  if (!transposed) return bench.random(bench.plain(), {rows, cols}, dtype);
  return bench.random(bench.plain(), {cols, rows}, dtype).transpose(0, 1);
}

Json measure(GpuBench& bench, const Product& product) {
  const Tensor a = operand(bench, product.m, product.k, product.a_transposed, product.dtype);
  const Tensor b = operand(bench, product.k, product.n, product.b_transposed, product.dtype);
  const Tensor out = empty(bench.plain(), {product.m, product.n}, product.dtype);
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
  const double peak = product.dtype == DType::bf16 ? bench.peak() : 0;  // that of fp32 is another
  Json line = {{"m", product.m},
               {"n", product.n},
               {"k", product.k},
               {"dtype", name_of(product.dtype)},
               {"own_tflops", tflops(seconds[0])}};
  if (peak > 0) line["own_of_peak"] = product.flops() / seconds[0] / peak;
  line["library"] = library ? kernels::matmul_backend(bench.automatic(), product.dtype) : "none in this build";
  if (library) {
    line["library_tflops"] = tflops(seconds[1]);
    line["own_of_library"] = seconds[1] / seconds[0];
    if (peak > 0) line["library_of_peak"] = product.flops() / seconds[1] / peak;
  }
  return line;
}

}  // namespace

void bench_products(GpuBench& bench) {
  for (const Product& product : all_products(bench.options()))
    bench.run("matmul", product.name, [&] { return measure(bench, product); });
}

}  // namespace keel::bench
