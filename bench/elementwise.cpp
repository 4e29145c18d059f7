// Kernels that the memory should limit: nanoseconds of an element in the cache, and bytes per second against
// memcpy past it.
//
// "of copy" is measured where 192 MiB are read and written, each kernel in turn with a memcpy of as many bytes
// in the same threads: the median of (bytes that the kernel must read and write once / its time) over the same
// for memcpy. Near 1 the memory is the limit. "ns in cache" is for tensors of about 2^14 elements in one thread.
//
// usage: bench_elementwise [threads] [seconds per kernel] [part of a kernel's name]; "update": what optimizers do

#include "keel/kernels/elementwise.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "bench/measure.h"
#include "keel/kernels/loss.h"
#include "keel/kernels/norm.h"
#include "keel/kernels/reduce.h"
#include "keel/kernels/softmax.h"
#include "keel/kernels/update.h"
#include "keel/runtime/parallel.h"
#include "tests/support.h"

namespace keel::bench {
namespace {

constexpr std::int64_t kWidth = 1024;
constexpr std::int64_t kSmall = 1 << 14;
constexpr double kTraffic = 3 << 26;  // bytes past the cache, read and written

struct Kernel {
  std::string name;
  double bytes;  // of one element, read and written
  // The kernel on tensors of (rows, width).
  std::function<Contestant(const Context&, std::int64_t rows)> make;
  std::int64_t width = kWidth;

  std::int64_t rows(std::int64_t elements) const { return std::max<std::int64_t>(1, elements / width); }
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
      {concat("sum of squares ", dtype), size, [dtype](const Context& context, std::int64_t rows) -> Contestant {
         const Tensor x = input(context, rows, dtype);
         return [x] { kernels::sum_of_squares(x); };
       }});
  kernels.push_back(
      {concat("sum of rows ", dtype), size, [dtype](const Context& context, std::int64_t rows) -> Contestant {
         const Tensor x = input(context, rows, dtype), into = zeros(context, {kWidth});
         return [x, into] { kernels::sum_rows(x, into); };
       }});
}

void add_norms(std::vector<Kernel>& kernels, NormKind kind, DType dtype) {
  const std::string name = kind == NormKind::layer ? "layer norm" : "rms norm";
  const double size = static_cast<double>(size_of(dtype));
  const auto weight_of = [dtype](const Context& context) {
    return testing::uniform_tensor(context, {kWidth}, 3, dtype);
  };
  kernels.push_back({concat(name, " ", dtype), 2 * size, [=](const Context& context, std::int64_t rows) -> Contestant {
                       const Tensor x = input(context, rows, dtype), weight = weight_of(context);
                       const Tensor bias = kind == NormKind::layer ? weight : Tensor();
                       return [=] { kernels::norm(kind, x, {}, weight, bias, 1e-5); };
                     }});
  kernels.push_back(
      {concat(name, " backward ", dtype), 3 * size, [=](const Context& context, std::int64_t rows) -> Contestant {
         const Tensor x = input(context, rows, dtype), weight = weight_of(context);
         const kernels::NormResult forward = kernels::norm(kind, x, {}, weight, {}, 1e-5);
         NormBackwardArgs args{};
         args.kind = kind;
         args.grad_output = input(context, rows, dtype, 2);
         args.x = x;
         args.weight = weight;
         args.mean = forward.mean;
         args.rstd = forward.rstd;
         args.grad_weight = zeros(context, {kWidth});
         if (kind == NormKind::layer) args.grad_bias = zeros(context, {kWidth});
         return [args] { kernels::norm_backward(args); };
       }});
}

// Rows of `classes` logits; "in place" writes the gradient over them.
void add_classes(std::vector<Kernel>& kernels, DType dtype, std::int64_t classes) {
  const double size = static_cast<double>(size_of(dtype));
  const auto logits_of = [=](const Context& context, std::int64_t rows) {
    return testing::uniform_tensor(context, {rows, classes}, 1, dtype);
  };
  kernels.push_back({concat("softmax of ", classes, " ", dtype), 2 * size,
                     [=](const Context& context, std::int64_t rows) -> Contestant {
                       const Tensor x = logits_of(context, rows);
                       return [x] { kernels::softmax(x); };
                     },
                     classes});
  for (const kernels::LogitsGradient gradient : {kernels::LogitsGradient::none, kernels::LogitsGradient::over_logits}) {
    const bool none = gradient == kernels::LogitsGradient::none;
    kernels.push_back({concat("cross-entropy of ", classes, none ? " " : ", in place ", dtype), (none ? 1 : 2) * size,
                       [=](const Context& context, std::int64_t rows) -> Contestant {
                         const Tensor logits = logits_of(context, rows), targets = zeros(context, {rows}, DType::i64);
                         return [=] { kernels::cross_entropy(logits, targets, -100, 0, gradient); };
                       },
                       classes});
  }
}

// Each state and the master are read and written, the gradient is read; fp32 weights are read and written, a narrow
// parameter is written besides its master copy.
// What finds norms reads the same and writes nothing.
void add_update(std::vector<Kernel>& kernels, const std::string& name, const UpdateSettings& settings, DType dtype,
                bool measures = false) {
  const std::size_t kept = state_names(settings).size();
  const double size = static_cast<double>(size_of(dtype));
  const double both = 8.0 * static_cast<double>(kept) + 8.0 + (dtype == DType::f32 ? 1 : 2) * size;
  const double bytes = measures ? 4.0 * static_cast<double>(kept) + 4.0 + size : both;
  kernels.push_back({concat(name, " ", dtype), bytes, [=](const Context& context, std::int64_t rows) -> Contestant {
                       const auto flat = [&](DType type, std::uint64_t seed) {
                         return input(context, rows, type, seed).flatten();
                       };
                       UpdateArgs args{};
                       args.parameter = flat(dtype, 1);
                       if (dtype != DType::f32) args.master = flat(DType::f32, 1);
                       args.gradient = flat(dtype, 2);
                       for (std::size_t i = 0; i < kept; ++i) args.state[i] = flat(DType::f32, 3 + i);
                       args.settings = settings;
                       if (decays(settings)) args.range.weight_decay = 0.1;
                       const std::int64_t shared = std::max(1, norm_count(settings));
                       args.shared = kernels::full(context, {shared}, 0.9, DType::f64);
                       args.step = kernels::make_step_state(context, {.steps = 10, .taken = 1, .lr = 1e-3});
                       if (measures) return [args] { kernels::measure_norms(args, args.shared); };
                       return [args] { kernels::update(args); };
                     }});
}

// States in codes: two bytes a number, and the scales of its block.
void add_update_blocks(std::vector<Kernel>& kernels, DType dtype) {
  const double size = static_cast<double>(size_of(dtype));
  const double bytes = 8.0 + (dtype == DType::f32 ? 1 : 2) * size + 4 * (1 + 4.0 / kStateBlock);
  kernels.push_back(
      {concat("update adamw, 8 bits ", dtype), bytes, [=](const Context& context, std::int64_t rows) -> Contestant {
         UpdateArgs args{};
         args.parameter = input(context, rows, dtype).flatten();
         if (dtype != DType::f32) args.master = input(context, rows, DType::f32).flatten();
         args.gradient = input(context, rows, dtype, 2).flatten();
         for (const std::size_t kind : {0, 1}) {
           args.state[kind] = zeros(context, {args.parameter.numel()}, DType::u8);
           args.scales[kind] = zeros(context, {state_blocks(args.parameter.numel())});
         }
         args.step = kernels::make_step_state(context, {.steps = 7, .taken = 1, .lr = 1e-3});
         args.settings = AdamSettings{.beta2 = 0.99, .decoupled = true};
         return [args] { kernels::update(args); };
       }});
}

void add_updates(std::vector<Kernel>& kernels, DType dtype) {
  add_update_blocks(kernels, dtype);
  add_update(kernels, "update adamw", AdamSettings{.beta2 = 0.99, .decoupled = true}, dtype);
  add_update(kernels, "update adam", AdamSettings{}, dtype);
  add_update(kernels, "update adam amsgrad", AdamSettings{.amsgrad = true}, dtype);
  add_update(kernels, "update adamax", AdamaxSettings{}, dtype);
  add_update(kernels, "update nadam", NAdamSettings{}, dtype);
  add_update(kernels, "update radam", RAdamSettings{}, dtype);
  add_update(kernels, "update sgd", SgdSettings{}, dtype);
  add_update(kernels, "update sgd momentum", SgdSettings{.momentum = 0.9}, dtype);
  add_update(kernels, "update adagrad", AdagradSettings{}, dtype);
  add_update(kernels, "update adadelta", AdadeltaSettings{}, dtype);
  add_update(kernels, "update rmsprop", RmspropSettings{}, dtype);
  add_update(kernels, "update rmsprop all", RmspropSettings{.momentum = 0.9, .centered = true}, dtype);
  add_update(kernels, "update rprop", RpropSettings{}, dtype);
  add_update(kernels, "update asgd", AsgdSettings{}, dtype);
  add_update(kernels, "update lion", LionSettings{}, dtype);
  for (const bool measures : {true, false}) {
    const std::string name = measures ? "norms of " : "update ";
    add_update(kernels, name + "lamb", LambSettings{}, dtype, measures);
    add_update(kernels, name + "lars", LarsSettings{}, dtype, measures);
    add_update(kernels, name + "adafactor", AdafactorSettings{}, dtype, measures);
  }
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
    add_unary_backward<Silu>(kernels, dtype);
    add_binary<Add>(kernels, dtype);
    add_binary<Mul>(kernels, dtype);
    add_unary<MulScalar>(kernels, dtype);
    add_moves(kernels, dtype);
    add_sums(kernels, dtype);
    add_norms(kernels, NormKind::layer, dtype);
    add_norms(kernels, NormKind::rms, dtype);
    for (const std::int64_t classes : {65, 50257}) add_classes(kernels, dtype, classes);
    add_updates(kernels, dtype);
  }
  add_cast(kernels, DType::f32, DType::bf16);
  add_cast(kernels, DType::bf16, DType::f32);
  add_cast(kernels, DType::f32, DType::f16);
  add_cast(kernels, DType::f16, DType::f32);
  return kernels;
}

// memcpy of `bytes`, cut into one piece for each thread.
Contestant copy_of(const Context& context, std::int64_t bytes) {
  const Tensor from = zeros(context, {bytes}, DType::u8), to = zeros(context, {bytes}, DType::u8);
  return [=] {
    const std::int64_t grain = (bytes + context.threads() - 1) / context.threads();
    parallel_for(context, bytes, grain, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to.raw() + begin, from.raw() + begin, static_cast<std::size_t>(end - begin));
    });
  };
}

double nanoseconds_in_cache(const Kernel& kernel, double seconds) {
  constexpr int kRepeats = 16;
  const std::int64_t rows = kernel.rows(kSmall);
  const Contestant small = kernel.make(testing::context(1), rows);
  const auto many = [&] {
    for (int i = 0; i < kRepeats; ++i) small();
  };
  return 1e9 * race({many}, seconds).front().median / static_cast<double>(kRepeats * rows * kernel.width);
}

void run(int threads, double seconds, const std::string& part) {
  const Context context = testing::context(threads);
  std::printf("threads %d\n", threads);
  std::printf("%-38s %12s %14s %10s %9s\n", "kernel", "ns in cache", "ns past cache", "copy GB/s", "of copy");
  for (const Kernel& kernel : all_kernels()) {
    if (kernel.name.find(part) == std::string::npos) continue;
    const double cached = nanoseconds_in_cache(kernel, seconds / 4);
    const std::int64_t rows = kernel.rows(static_cast<std::int64_t>(kTraffic / kernel.bytes));
    const double elements = static_cast<double>(rows * kernel.width), bytes = kernel.bytes * elements;
    const auto times =
        race({copy_of(context, static_cast<std::int64_t>(bytes / 2)), kernel.make(context, rows)}, seconds);
    std::printf("%-38s %12.3f %14.3f %10.1f %9.2f\n", kernel.name.c_str(), cached, 1e9 * times[1].median / elements,
                1e-9 * bytes / times[0].median, times[0].median / times[1].median);
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
