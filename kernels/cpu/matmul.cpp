#include <cstdint>

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/gemm.h"
#include "keel/runtime/parallel.h"

namespace keel::cpu {
namespace {

// Multiply-adds from which one matrix of a batch is split over threads, instead of the batch.
constexpr std::int64_t kLargeProducts = std::int64_t{1} << 26;
// Multiply-adds that are worth a chunk of the batch, and those in the time of a call of gemm() with tiny matrices.
constexpr std::int64_t kChunkProducts = 1 << 21;
constexpr std::int64_t kCallProducts = 1 << 14;

// Element offset of matrix `index` of a batch.
std::int64_t batch_offset(const Tensor& x, std::int64_t index) {
  std::int64_t offset = 0;
  for (int d = x.rank() - 3; d >= 0; --d) {
    offset += index % x.dim(d) * x.stride(d);
    index /= x.dim(d);
  }
  return offset;
}

template <class T>
MatrixView<T> view_of(const Tensor& x) {
  return {x.data<T>(), x.dim(-2) == 1 ? x.dim(-1) : x.stride(-2), x.dim(-1) == 1 ? 1 : x.stride(-1)};
}

template <class T, class Out>
void multiply(const MatmulArgs& args) {
  const Context& context = args.a.context();
  GemmArgs<T, Out> first;
  first.m = args.out.dim(-2);
  first.n = args.out.dim(-1);
  first.k = args.a.dim(-1);
  first.a = view_of<T>(args.a);
  first.b = view_of<T>(args.b);
  first.c = args.out.data<Out>();
  first.ldc = args.out.stride(-2);
  first.alpha = args.alpha;
  first.accumulate = args.accumulate;
  first.epilogue = args.epilogue;
  if (args.bias.defined()) first.bias = args.bias.data<T>();
  if (args.pre_activation.defined()) {
    first.pre_activation = args.pre_activation.data<Out>();
    first.ld_pre_activation = args.pre_activation.stride(-2);
  }
  const std::int64_t count = args.out.numel() / (first.m * first.n);
  const auto multiply_range = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      GemmArgs<T, Out> one = first;
      if (first.k > 0) {  // else they may have no memory
        one.a.data += batch_offset(args.a, i);
        one.b.data += batch_offset(args.b, i);
      }
      one.c += batch_offset(args.out, i);
      if (one.pre_activation != nullptr) one.pre_activation += batch_offset(args.pre_activation, i);
      gemm(context, one);
    }
  };
  const std::int64_t products = first.m * first.n * first.k;
  if (count == 1 || products >= kLargeProducts) return multiply_range(0, count);
  parallel_for(context, count, std::max<std::int64_t>(1, kChunkProducts / (products + kCallProducts)), multiply_range);
}

}  // namespace

void multiply_plain(const MatmulArgs& args) {
  visit_floating(args.a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (args.out.dtype() == dtype_of<T>()) multiply<T, T>(args);
    else multiply<T, Accumulator<T>>(args);
  });
}

std::string plain_backend(DType dtype) {
  const bool pairs = dtype == DType::bf16 && Product<bf16>::kDepth == 2;
  const bool widened = !pairs && (dtype == DType::bf16 || dtype == DType::f16);
  return concat("keel (", kTile.instructions, pairs ? ", bf16 dot products)" : widened ? ", widened to f32)" : ")");
}

void (*onednn_entry())(const MatmulArgs& args) {
#ifdef KEEL_HAVE_ONEDNN
  return multiply_onednn;
#else
  return nullptr;
#endif
}

void add_matmul(KernelTable& table) { table.matmul = multiply_plain; }

}  // namespace keel::cpu
