// Kernels that the memory should limit. A kernel's bytes are those that it must read and write once, whatever it does.

#include <optional>
#include <set>

#include "bench/gpu/bench.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/embedding.h"
#include "keel/kernels/loss.h"
#include "keel/kernels/norm.h"
#include "keel/kernels/reduce.h"
#include "keel/kernels/softmax.h"
#include "keel/kernels/update.h"
#include "keel/runtime/device_api.h"

namespace keel::bench {
namespace {

constexpr double kSize = 2;  // bytes of bf16
constexpr DType kType = DType::bf16;

struct Prepared {
  double bytes;
  std::function<void()> run;
};
struct Kernel {
  std::string name;
  double row_bytes;  // about; it decides how many rows there are
  std::function<Prepared(GpuBench&, const Context&, std::int64_t rows)> prepare;
};

// A kernel on dense (rows, width) inputs of one dtype; it moves `elements` of them for each element.
template <class F>
Kernel simple(const std::string& name, DType dtype, std::int64_t width, int inputs, double elements, F run) {
  const double row_bytes = elements * static_cast<double>(size_of(dtype)) * static_cast<double>(width);
  return {name, row_bytes, [=](GpuBench& bench, const Context& context, std::int64_t rows) -> Prepared {
            std::vector<Tensor> x;
            for (int i = 0; i < inputs; ++i) x.push_back(bench.random(context, {rows, width}, dtype));
            return {row_bytes * static_cast<double>(rows), [x, run] { run(x); }};
          }};
}

using Inputs = std::vector<Tensor>;

void add_elementwise(std::vector<Kernel>& kernels, std::int64_t width) {
  for (const DType dtype : {kType, DType::f32})
    kernels.push_back(
        simple(concat("add ", dtype), dtype, width, 2, 3, [](const Inputs& x) { kernels::binary<Add>(x[0], x[1]); }));
  kernels.push_back(simple("gelu bf16", kType, width, 1, 2, [](const Inputs& x) { kernels::unary<GeluTanh>(x[0]); }));
  kernels.push_back(simple("gelu backward bf16", kType, width, 2, 3,
                           [](const Inputs& x) { kernels::unary_backward(index_of<GeluTanh, UnaryOps>, x[0], x[1]); }));
  kernels.push_back(
      simple("cast f32 to bf16", DType::f32, width, 1, 1.5, [](const Inputs& x) { kernels::cast(x[0], DType::bf16); }));
  kernels.push_back(
      simple("cast bf16 to f32", kType, width, 1, 3, [](const Inputs& x) { kernels::cast(x[0], DType::f32); }));
  kernels.push_back(
      simple("transpose bf16", kType, width, 1, 2, [](const Inputs& x) { kernels::contiguous(x[0].transpose(0, 1)); }));
  kernels.push_back(
      {"dropout bf16", 2 * kSize * static_cast<double>(width),
       [=](GpuBench& bench, const Context& context, std::int64_t rows) -> Prepared {
         const Tensor x = bench.random(context, {rows, 1, width}, kType);
         const Tensor ids = kernels::arange(context, 0, rows);
         return {2.0 * static_cast<double>(x.bytes()), [=] { kernels::dropout(x, 0.1, DropoutKey{.seed = 1}, ids); }};
       }});
}

void add_rows(std::vector<Kernel>& kernels, std::int64_t width) {
  kernels.push_back(simple(concat("bias gradient bf16, ", 4 * width, " columns"), kType, 4 * width, 1, 1,
                           [](const Inputs& x) { kernels::sum_rows(x[0]); }));
  kernels.push_back(
      simple("softmax bf16, 1024 columns", kType, 1024, 1, 2, [](const Inputs& x) { kernels::softmax(x[0]); }));
}

// x, residual to sum, out; and sum, grad_output, grad_sum to grad_x.
void add_norms(std::vector<Kernel>& kernels, std::int64_t width) {
  const double row_bytes = 4 * kSize * static_cast<double>(width) + 8;  // and mean and rstd
  kernels.push_back({concat("residual and layer norm bf16, ", width, " columns"), row_bytes,
                     [=](GpuBench& bench, const Context& context, std::int64_t rows) -> Prepared {
                       const Tensor x = bench.random(context, {rows, width}, kType);
                       const Tensor residual = bench.random(context, {rows, width}, kType);
                       const Tensor weight = bench.random(context, {width}, kType);
                       return {row_bytes * static_cast<double>(rows),
                               [=] { kernels::norm(NormKind::layer, x, residual, weight, weight, 1e-5); }};
                     }});
  kernels.push_back({concat("layer norm backward bf16, ", width, " columns"), row_bytes,
                     [=](GpuBench& bench, const Context& context, std::int64_t rows) -> Prepared {
                       const auto input = [&] { return bench.random(context, {rows, width}, kType); };
                       NormBackwardArgs args{};
                       args.kind = NormKind::layer;
                       args.x = input();
                       args.weight = bench.random(context, {width}, kType);
                       const kernels::NormResult forward =
                           kernels::norm(NormKind::layer, args.x, {}, args.weight, args.weight, 1e-5);
                       args.mean = forward.mean;
                       args.rstd = forward.rstd;
                       args.grad_output = input();
                       args.grad_sum = input();
                       args.grad_weight = empty(context, {width}, kType);
                       args.grad_bias = empty(context, {width}, kType);
                       return {row_bytes * static_cast<double>(rows), [args] { kernels::norm_backward(args); }};
                     }});
}

// Loss and gradient in one pass, the gradient written over the logits.
void add_classifier(std::vector<Kernel>& kernels, std::int64_t classes) {
  const double row_bytes = 2 * kSize * static_cast<double>(classes);
  kernels.push_back({concat("classifier bf16, ", classes, " classes"), row_bytes,
                     [=](GpuBench& bench, const Context& context, std::int64_t rows) -> Prepared {
                       const Tensor logits = bench.random(context, {rows, classes}, kType);
                       const Tensor targets = bench.random_tokens(context, {rows}, classes);
                       return {row_bytes * static_cast<double>(rows), [=] {
                                 kernels::cross_entropy(logits, targets, -100, 0, kernels::LogitsGradient::over_logits);
                               }};
                     }});
}

void add_update(std::vector<Kernel>& kernels, std::int64_t width) {
  // Reads gradient, master, m and v; writes parameter, master, m and v.
  const double row_bytes = (2 * kSize + 24) * static_cast<double>(width);
  kernels.push_back(
      {"adamw bf16", row_bytes, [=](GpuBench& bench, const Context& context, std::int64_t rows) -> Prepared {
         const auto flat = [&](DType dtype) { return bench.random(context, {rows * width}, dtype, 0.01, 1); };
         UpdateArgs args{};
         args.parameter = flat(kType);
         args.gradient = flat(kType);
         args.master = flat(DType::f32);
         args.state = {flat(DType::f32), flat(DType::f32)};
         args.settings = AdamSettings{.beta1 = 0.9, .beta2 = 0.95, .decoupled = true};
         args.range.weight_decay = 0.1;
         args.step = kernels::make_step_state(context, {.steps = 10, .taken = 1, .lr = 1e-4});
         return {row_bytes * static_cast<double>(rows), [args] { kernels::update(args); }};
       }});
  kernels.push_back({"sum of squares bf16", kSize * static_cast<double>(width),
                     [=](GpuBench& bench, const Context& context, std::int64_t rows) -> Prepared {
                       const Tensor x = bench.random(context, {rows * width}, kType);
                       const Tensor state = kernels::make_step_state(context);
                       return {static_cast<double>(x.bytes()), [=] { kernels::add_squares(x, state); }};
                     }});
}

// Only the rows of the table that occur need be read, each once; backward writes the whole table.
void add_embedding(std::vector<Kernel>& kernels, std::int64_t width, std::int64_t vocabulary) {
  const double row_bytes = kSize * static_cast<double>(width) + 4;
  kernels.push_back(
      {"embedding bf16", row_bytes, [=](GpuBench& bench, const Context& context, std::int64_t rows) -> Prepared {
         const Tensor ids = bench.random_tokens(context, {rows}, vocabulary);
         const std::vector<std::int32_t> values = ids.to_vector<std::int32_t>();
         const std::set<std::int32_t> distinct(values.begin(), values.end());
         const Tensor table = bench.random(context, {vocabulary, width}, kType);
         const double read = kSize * static_cast<double>(width) * static_cast<double>(distinct.size());
         return {row_bytes * static_cast<double>(rows) + read, [=] { kernels::embedding(table, ids); }};
       }});
  kernels.push_back({"embedding backward bf16", row_bytes,
                     [=](GpuBench& bench, const Context& context, std::int64_t rows) -> Prepared {
                       const Tensor ids = bench.random_tokens(context, {rows}, vocabulary);
                       const Tensor grad = bench.random(context, {rows, width}, kType);
                       const Tensor table = empty(context, {vocabulary, width}, kType);
                       return {row_bytes * static_cast<double>(rows) + static_cast<double>(table.bytes()),
                               [=] { kernels::embedding_backward(grad, ids, table, false); }};
                     }});
}

std::vector<Kernel> all_kernels(bool rehearse) {
  const std::int64_t width = rehearse ? 64 : 768;
  std::vector<Kernel> kernels;
  add_elementwise(kernels, width);
  add_rows(kernels, width);
  add_norms(kernels, width);
  if (!rehearse) add_norms(kernels, 1600);
  for (const std::int64_t classes : {50304, 50257}) add_classifier(kernels, rehearse ? classes / 100 : classes);
  add_update(kernels, width);
  add_embedding(kernels, width, rehearse ? 100 : 50304);
  return kernels;
}

// A copy on the device, as CUDA itself makes it. Random numbers, since zeros could be faster.
Contestant copy_of(GpuBench& bench, const Context& context, std::int64_t bytes) {
  const Tensor from = bench.random(context, {bytes / 2}, kType), to = empty_like(from);
  return {context, [=] { context.api().copy(to.raw(), from.raw(), from.bytes(), context.stream().native()); }};
}

}  // namespace

void bench_memory(GpuBench& bench) {
  const bool rehearse = bench.options().rehearse;
  // Several times the largest cache, so that nothing of one run is left for the next.
  const double traffic = rehearse ? 4096 : 1 << 30;
  const Context& context = bench.automatic();
  const auto copied = static_cast<std::int64_t>(traffic / 2);
  std::optional<Contestant> copy;
  for (const Kernel& kernel : all_kernels(rehearse)) {
    bench.run("memory", kernel.name, [&]() -> Json {
      const auto rows = std::max<std::int64_t>(2, static_cast<std::int64_t>(traffic / kernel.row_bytes));
      const Prepared prepared = kernel.prepare(bench, context, rows);
      if (!copy) copy = copy_of(bench, context, copied);
      const std::vector<double> seconds = bench.race({*copy, {context, prepared.run}});
      const double ceiling = 2 * static_cast<double>(copied) / seconds[0], rate = prepared.bytes / seconds[1];
      return {{"rows", rows},
              {"bytes", prepared.bytes},
              {"seconds", seconds[1]},
              {"gb_per_s", 1e-9 * rate},
              {"copy_gb_per_s", 1e-9 * ceiling},
              {"of_copy", rate / ceiling}};
    });
  }
}

}  // namespace keel::bench
