// Causal attention on packed queries, keys and values: keel's own kernels and the library's entry.

#include "keel/kernels/attention.h"
#include "bench/gpu/bench.h"
#include "keel/kernels/table.h"

namespace keel::bench {
namespace {

struct Shape {
  std::int64_t batch, heads, time, head_size;
  // The name under which bench/peers/gpu.py reports the same work.
  std::string name() const { return concat("causal, head size ", head_size, ", T ", time); }
  // Two products over the pairs that the mask admits; backward has five.
  double forward_flops() const { return 2.0 * static_cast<double>(batch * heads * time * time * head_size); }
};

std::vector<Shape> all_shapes(const GpuOptions& options) {
  if (options.rehearse) return {{1, 2, 40, 64}};
  std::vector<Shape> shapes;
  for (const std::int64_t head_size : {64, 128})
    for (const std::int64_t time : {1024, 4096})
      if (!options.quick || time == 1024) shapes.push_back({16384 / time, 2048 / head_size, time, head_size});
  return shapes;
}

struct Pass {
  Contestant forward, backward;
  AttentionBackwardArgs args;
};

// x: (batch, time, 3, heads, head size), as one product makes them; the gradient likewise.
Pass pass_on(const Context& context, const Shape& shape, const Tensor& x, const Tensor& grad) {
  const auto part = [](const Tensor& packed, int i) { return packed.select(2, i).transpose(1, 2); };
  const Tensor here = GpuBench::shared_with(context, x);
  AttentionArgs args;
  args.q = part(here, 0), args.k = part(here, 1), args.v = part(here, 2);
  args.out = empty(context, {shape.batch, shape.time, shape.heads, shape.head_size}, x.dtype()).transpose(1, 2);
  args.causal = true;
  AttentionBackwardArgs back;
  back.forward = args = kernels::attention(args);  // lse, too
  back.grad_out = GpuBench::shared_with(context, grad).transpose(1, 2);
  const Tensor grad_x = empty_like(here);
  back.grad_q = part(grad_x, 0), back.grad_k = part(grad_x, 1), back.grad_v = part(grad_x, 2);
  return {
      {context, [args] { kernels::attention(args); }}, {context, [back] { kernels::attention_backward(back); }}, back};
}

Json measure(GpuBench& bench, const Shape& shape) {
  const Dims packed = {shape.batch, shape.time, 3, shape.heads, shape.head_size};
  const Tensor x = bench.random(bench.plain(), packed, DType::bf16);
  const Tensor grad = bench.random(bench.plain(), {shape.batch, shape.time, shape.heads, shape.head_size}, DType::bf16);
  const KernelTable &own = kernel_table(bench.plain()), &all = kernel_table(bench.automatic());
  const bool library = own.attention != all.attention;
  std::vector<Contestant> contestants;
  Pass pass;
  for (const Context& context : {bench.plain(), bench.automatic()}) {
    if (context == bench.automatic() && !library) break;
    pass = pass_on(context, shape, x, grad);
    contestants.push_back(pass.forward);
    contestants.push_back(pass.backward);
  }
  const std::vector<double> seconds = bench.race(contestants);
  const double flops = shape.forward_flops();
  Json line = {{"batch", shape.batch},
               {"heads", shape.heads},
               {"time", shape.time},
               {"head_size", shape.head_size},
               {"own_forward_tflops", 1e-12 * flops / seconds[0]},
               {"own_backward_tflops", 2.5e-12 * flops / seconds[1]}};
  line["library"] = library ? "in this build" : "none in this build";
  // Whose kernels the library's entry ran, and figures of the library's alone.
  const auto add_library = [&](const std::string& direction, const std::string& by, double of_forward,
                               std::size_t own) {
    line[concat("library_", direction, "_by")] = by;
    if (by.starts_with("keel")) return;
    line[concat("library_", direction, "_tflops")] = 1e-12 * of_forward * flops / seconds[own + 2];
    line[concat("own_of_library_", direction)] = seconds[own + 2] / seconds[own];
  };
  if (library) {
    add_library("forward", kernels::attention_backend(pass.args.forward), 1, 0);
    add_library("backward", kernels::attention_backend(pass.args), 2.5, 1);
  }
  return line;
}

}  // namespace

void bench_attention(GpuBench& bench) {
  for (const Shape& shape : all_shapes(bench.options()))
    bench.run("attention", shape.name(), [&] { return measure(bench, shape); });
}

}  // namespace keel::bench
