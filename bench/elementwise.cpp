// Elementwise kernels, norms, sums and AdamW: nanoseconds of an element in the cache, and bytes per second
// against memcpy past it.
//
// "of copy" is measured on tensors of 64 MiB and more, each kernel in turn with memcpy in the same threads:
// the median of (bytes that the kernel must read and write once / its time) over the same for memcpy. Near
// 1 the memory is the limit. "ns in cache" is for tensors of 16,384 elements in one thread.
//
// usage: bench_elementwise [threads] [seconds per kernel] [part of a kernel's name]

#include "keel/kernels/elementwise.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "bench/measure.h"
#include "keel/kernels/norm.h"
#include "keel/kernels/reduce.h"
#include "keel/kernels/update.h"
#include "keel/runtime/parallel.h"
#include "tests/support.h"

namespace keel::bench {
namespace {

constexpr std::int64_t kWidth = 1024;
constexpr std::int64_t kSmallRows = 16;
constexpr std::int64_t kLargeRows = 16384;

struct Kernel {
  std::string name;
  double bytes;  // of one element, read and written
  // The kernel on tensors of (rows, kWidth).
  std::function<Contestant(const Context&, std::int64_t rows)> make;
};

// Positive, so that logarithms and roots have something to do.
Tensor input(const Context& context, std::int64_t rows, DType dtype, std::uint64_t seed = 1) {
  return testing::uniform_tensor(context, {rows, kWidth}, seed, dtype, 0.01, 2.0);
}

template <class Op>
void add_unary(std::vector<Kernel>& kernels, DType dtype) {
  kernels.push_back({concat(Op::name, " ", dtype), 2.0 * static_cast<double>(size_of(dtype)),
                     [dtype](const Context& context, std::int64_t rows) -> Contestant {
                       const Tensor x = input(context, rows, dtype);
                       return [x] { kernels::unary<Op>(x, 1.5); };
                     }});
}
template <class Op>
void add_unary_backward(std::vector<Kernel>& kernels, DType dtype) {
  kernels.push_back({concat(Op::name, " backward ", dtype), 3.0 * static_cast<double>(size_of(dtype)),
                     [dtype](const Context& context, std::int64_t rows) -> Contestant {
                       const Tensor grad = input(context, rows, dtype), kept = input(context, rows, dtype, 2);
                       return [=] { kernels::unary_backward(index_of<Op, UnaryOps>, grad, kept); };
                     }});
}
template <class Op>
void add_binary(std::vector<Kernel>& kernels, DType dtype) {
  kernels.push_back({concat(Op::name, " ", dtype), 3.0 * static_cast<double>(size_of(dtype)),
                     [dtype](const Context& context, std::int64_t rows) -> Contestant {
                       const Tensor a = input(context, rows, dtype), b = input(context, rows, dtype, 2);
                       return [=] { kernels::binary<Op>(a, b); };
                     }});
}

void add_cast(std::vector<Kernel>& kernels, DType from, DType to) {
  kernels.push_back({concat("cast ", from, " to ", to), static_cast<double>(size_of(from) + size_of(to)),
                     [from, to](const Context& context, std::int64_t rows) -> Contestant {
                       const Tensor x = input(context, rows, from);
                       return [=] { kernels::cast(x, to); };
                     }});
}

void add_moves(std::vector<Kernel>& kernels, DType dtype) {
  const double size = static_cast<double>(size_of(dtype));
  kernels.push_back(
      {concat("transpose ", dtype), 2 * size, [dtype](const Context& context, std::int64_t rows) -> Contestant {
         const Tensor x = input(context, rows, dtype).transpose(0, 1);
         return [x] { kernels::contiguous(x); };
       }});
  // (sequences, positions, heads, channels) to (sequences, heads, positions, channels)
  kernels.push_back(
      {concat("split heads ", dtype), 2 * size, [dtype](const Context& context, std::int64_t rows) -> Contestant {
         const Tensor x = input(context, rows, dtype).view({rows / 16, 16, kWidth / 64, 64}).transpose(1, 2);
         return [x] { kernels::contiguous(x); };
       }});
}

void add_sums(std::vector<Kernel>& kernels, DType dtype) {
  const double size = static_cast<double>(size_of(dtype));
  kernels.push_back({concat("sum ", dtype), size, [dtype](const Context& context, std::int64_t rows) -> Contestant {
                       const Tensor x = input(context, rows, dtype);
                       return [x] { kernels::sum(x); };
                     }});
  kernels.push_back(
      {concat("sum of rows ", dtype), size, [dtype](const Context& context, std::int64_t rows) -> Contestant {
         const Tensor x = input(context, rows, dtype), into = zeros(context, {kWidth});
         return [x, into] { kernels::sum_rows(x, into); };
       }});
}

void add_norms(std::vector<Kernel>& kernels, DType dtype) {
  const double size = static_cast<double>(size_of(dtype));
  const auto weight_of = [dtype](const Context& context) {
    return testing::uniform_tensor(context, {kWidth}, 3, dtype);
  };
  kernels.push_back(
      {concat("layer norm ", dtype), 2 * size, [=](const Context& context, std::int64_t rows) -> Contestant {
         const Tensor x = input(context, rows, dtype), weight = weight_of(context);
         return [=] { kernels::norm(NormKind::layer, x, {}, weight, weight, 1e-5); };
       }});
  kernels.push_back(
      {concat("layer norm backward ", dtype), 3 * size, [=](const Context& context, std::int64_t rows) -> Contestant {
         const Tensor x = input(context, rows, dtype), weight = weight_of(context);
         const kernels::NormResult forward = kernels::norm(NormKind::layer, x, {}, weight, weight, 1e-5);
         NormBackwardArgs args{};
         args.kind = NormKind::layer;
         args.grad_output = input(context, rows, dtype, 2);
         args.x = x;
         args.weight = weight;
         args.mean = forward.mean;
         args.rstd = forward.rstd;
         args.grad_weight = zeros(context, {kWidth});
         args.grad_bias = zeros(context, {kWidth});
         return [args] { kernels::norm_backward(args); };
       }});
}

// fp32 reads p, g, m, v and writes p, m, v; a narrow parameter is written besides its master copy.
void add_adamw(std::vector<Kernel>& kernels, DType dtype) {
  const bool wide = dtype == DType::f32;
  const double bytes = 24.0 + (wide ? 1 : 2) * static_cast<double>(size_of(dtype));
  kernels.push_back({concat("adamw ", dtype), bytes, [=](const Context& context, std::int64_t rows) -> Contestant {
                       const auto flat = [&](DType type, std::uint64_t seed) {
                         return input(context, rows, type, seed).flatten();
                       };
                       AdamWArgs args{};
                       args.parameter = flat(dtype, 1);
                       if (!wide) args.master = flat(DType::f32, 1);
                       args.gradient = flat(dtype, 2);
                       args.m = flat(DType::f32, 3);
                       args.v = flat(DType::f32, 4);
                       args.lr = 1e-3, args.beta1 = 0.9, args.beta2 = 0.99;
                       args.epsilon = 1e-8, args.weight_decay = 0.1;
                       args.step = 10;
                       args.gradient_scale = 1;
                       return [args] { kernels::adamw(args); };
                     }});
}

std::vector<Kernel> all_kernels() {
  std::vector<Kernel> kernels;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    add_unary<Exp>(kernels, dtype);
    add_unary<Log>(kernels, dtype);
    add_unary<Tanh>(kernels, dtype);
    add_unary<Sigmoid>(kernels, dtype);
    add_unary<Silu>(kernels, dtype);
    add_unary<Gelu>(kernels, dtype);
    add_unary_backward<Gelu>(kernels, dtype);
    add_unary<GeluTanh>(kernels, dtype);
    add_unary_backward<GeluTanh>(kernels, dtype);
    add_binary<Add>(kernels, dtype);
    add_binary<Mul>(kernels, dtype);
    add_unary<MulScalar>(kernels, dtype);
    add_moves(kernels, dtype);
    add_sums(kernels, dtype);
    add_norms(kernels, dtype);
    add_adamw(kernels, dtype);
  }
  add_cast(kernels, DType::f32, DType::bf16);
  add_cast(kernels, DType::bf16, DType::f32);
  add_cast(kernels, DType::f32, DType::f16);
  add_cast(kernels, DType::f16, DType::f32);
  return kernels;
}

constexpr std::int64_t kCopyBytes = std::int64_t{1} << 26;

Contestant copy_of(const Context& context) {
  const Tensor from = zeros(context, {kCopyBytes}, DType::u8), to = zeros(context, {kCopyBytes}, DType::u8);
  return [=] {
    const std::int64_t grain = (kCopyBytes + context.threads() - 1) / context.threads();
    parallel_for(context, kCopyBytes, grain, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to.raw() + begin, from.raw() + begin, static_cast<std::size_t>(end - begin));
    });
  };
}

void run(int threads, double seconds, const std::string& part) {
  const Context context = testing::context(threads), single = testing::context(1);
  const Contestant copy = copy_of(context);
  std::printf("threads %d; memcpy %.1f GB/s (read + written)\n", threads,
              2e-9 * static_cast<double>(kCopyBytes) / race({copy}, seconds).front().median);
  std::printf("%-30s %12s %14s %9s\n", "kernel", "ns in cache", "ns past cache", "of copy");
  for (const Kernel& kernel : all_kernels()) {
    if (kernel.name.find(part) == std::string::npos) continue;
    const Contestant small = kernel.make(single, kSmallRows);
    const auto many = [&] {
      for (int i = 0; i < 16; ++i) small();
    };
    const double cached = race({many}, seconds / 4).front().median / (16 * kSmallRows * kWidth);
    const auto times = race({copy, kernel.make(context, kLargeRows)}, seconds);
    const double elements = static_cast<double>(kLargeRows * kWidth);
    const double copy_rate = 2.0 * static_cast<double>(kCopyBytes) / times[0].median;
    std::printf("%-30s %12.3f %14.3f %9.2f\n", kernel.name.c_str(), 1e9 * cached, 1e9 * times[1].median / elements,
                kernel.bytes * elements / times[1].median / copy_rate);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : keel::default_threads();
  const double seconds = argc > 2 ? std::atof(argv[2]) : 1.0;
  keel::bench::run(threads, seconds, argc > 3 ? argv[3] : "");
}
