// Adding up what the ranks of a collective sent: one pass over all terms.

#include "keel/kernels/combine.h"
#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/device.h"

namespace keel::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kTermsAtOnce = 64;  // that a kernel's arguments name; what is beyond is added to their sum

// The first term may be the sum so far, in another type than the others.
struct Terms {
  const void* first;
  const void* others[kTermsAtOnce - 1];
  int count;  // of the others
};

struct Combiner {
  CombineOp op;
  std::int64_t divisor;  // of a mean
  template <class C>
  __device__ C operator()(C a, C b) const {
    if (op == CombineOp::sum || op == CombineOp::mean) return a + b;
    if (op == CombineOp::product) {
      if constexpr (std::is_integral_v<C>)
        return static_cast<C>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
      else return a * b;
    }
    if (b != b) return b;
    return (op == CombineOp::maximum ? b > a : b < a) ? b : a;
  }
  template <class C>
  __device__ C finish(C sum) const {
    return op == CombineOp::mean ? sum / static_cast<C>(divisor) : sum;
  }
};

template <class T>
inline constexpr int kEach = sizeof(T) < 4 ? 8 : 16 / static_cast<int>(sizeof(T));  // elements of a thread

// Moved in accesses of 16 bytes where they are that long.
template <class T, int kCount>
struct alignas(kCount * sizeof(T) < 16 ? kCount * sizeof(T) : 16) Several {
  T values[kCount];
};
template <class T, int kCount>
bool fits(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % alignof(Several<T, kCount>) == 0;
}

// C: what is added in. F, T, O: the types of the first term, of the others, and of the result.
template <class C, class F, class T, class O>
__global__ void combine_kernel(Terms terms, O* out, std::int64_t count, bool whole, Combiner combine) {
  constexpr int each = kEach<T>;
  const std::int64_t begin = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * each;
  const F* const first = static_cast<const F*>(terms.first);
  if (whole && begin + each <= count) {
    const auto start = *reinterpret_cast<const Several<F, each>*>(first + begin);
    C sums[each];
#pragma unroll
    for (int i = 0; i < each; ++i) sums[i] = widen<C>(start.values[i]);
    for (int t = 0; t < terms.count; ++t) {
      const auto term = *reinterpret_cast<const Several<T, each>*>(static_cast<const T*>(terms.others[t]) + begin);
#pragma unroll
      for (int i = 0; i < each; ++i) sums[i] = combine(sums[i], widen<C>(term.values[i]));
    }
    Several<O, each> result;
#pragma unroll
    for (int i = 0; i < each; ++i) result.values[i] = narrow<O>(combine.finish(sums[i]));
    *reinterpret_cast<Several<O, each>*>(out + begin) = result;
    return;
  }
  for (std::int64_t i = begin; i < begin + each && i < count; ++i) {
    C sum = widen<C>(first[i]);
    for (int t = 0; t < terms.count; ++t) sum = combine(sum, widen<C>(static_cast<const T*>(terms.others[t])[i]));
    out[i] = narrow<O>(combine.finish(sum));
  }
}

template <class C, class F, class T, class O>
void launch_combine(const Tensor& first, std::span<const Tensor> others, const Tensor& out, Combiner combiner) {
  Terms terms{first.raw(), {}, static_cast<int>(others.size())};
  bool whole = fits<F, kEach<T>>(first.raw()) && fits<O, kEach<T>>(out.raw());
  for (std::size_t t = 0; t < others.size(); ++t) {
    terms.others[t] = others[t].raw();
    whole = whole && fits<T, kEach<T>>(terms.others[t]);
  }
  const auto blocks = static_cast<unsigned>(ceil_div(out.numel(), std::int64_t{kThreads} * kEach<T>));
  launch("combine", combine_kernel<C, F, T, O>, {blocks, kThreads}, stream_of(out), terms, out.data<O>(), out.numel(),
         whole, combiner);
}

constexpr int kLevels = 7;  // of the tree over kTermsAtOnce terms

// A binary counter: where its bits are set there are sums of 2^level terms.
template <class C, class T, class O>
__global__ void combine_pairwise_kernel(Terms terms, O* out, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  C sums[kLevels];
  const int all = terms.count + 1;
  for (int t = 0; t < all; ++t) {
    C carry = widen<C>(static_cast<const T*>(t == 0 ? terms.first : terms.others[t - 1])[i]);
    bool is_placed = false;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if (is_placed) continue;
      if ((t >> level & 1) != 0) {
        carry = sums[level] + carry;
      } else {
        sums[level] = carry;
        is_placed = true;
      }
    }
  }
  C sum = C();
  bool is_first = true;
#pragma unroll
  for (int level = 0; level < kLevels; ++level) {
    if ((all >> level & 1) == 0) continue;
    sum = is_first ? sums[level] : sums[level] + sum;
    is_first = false;
  }
  out[i] = narrow<O>(sum);
}

// What is beyond kTermsAtOnce is added by sums of so many, which are partial sums of the tree.
template <class C, class T, class O>
void combine_pairwise(std::span<const Tensor> terms, const Tensor& out) {
  if (terms.size() > kTermsAtOnce) {
    std::vector<Tensor> sums;
    for (std::size_t at = 0; at < terms.size(); at += kTermsAtOnce) {
      sums.push_back(empty(out.context(), out.shape(), dtype_of<C>(), Purpose::workspace));
      combine_pairwise<C, T, C>(terms.subspan(at, std::min(kTermsAtOnce, terms.size() - at)), sums.back());
    }
    return combine_pairwise<C, C, O>(sums, out);
  }
  Terms few{terms[0].raw(), {}, static_cast<int>(terms.size()) - 1};
  for (std::size_t t = 1; t < terms.size(); ++t) few.others[t - 1] = terms[t].raw();
  const auto blocks = static_cast<unsigned>(ceil_div(out.numel(), std::int64_t{kThreads}));
  launch("combine_pairwise", combine_pairwise_kernel<C, T, O>, {blocks, kThreads}, stream_of(out), few, out.data<O>(),
         out.numel());
}

template <class C, class T, class O>
void combine_in(const CombineArgs& args) {
  const Combiner middle{args.op, 1};
  const Combiner last{args.op, args.divisor == 0 ? static_cast<std::int64_t>(args.terms.size()) : args.divisor};
  std::span<const Tensor> rest = args.terms.subspan(1);
  const auto take = [&](std::size_t most) {
    const auto taken = rest.first(std::min(rest.size(), most));
    rest = rest.subspan(taken.size());
    return taken;
  };
  const auto some = take(kTermsAtOnce - 1);
  if (rest.empty()) return launch_combine<C, T, T, O>(args.terms.front(), some, args.out, last);
  const Tensor sums = empty(args.out.context(), args.out.shape(), dtype_of<C>(), Purpose::workspace);
  launch_combine<C, T, T, C>(args.terms.front(), some, sums, middle);
  while (rest.size() > kTermsAtOnce - 1) launch_combine<C, C, T, C>(sums, take(kTermsAtOnce - 1), sums, middle);
  launch_combine<C, C, T, O>(sums, take(kTermsAtOnce - 1), args.out, last);
}

// Whole numbers are added in 64 bits for a mean.
template <class T, class O>
void combine_as(const CombineArgs& args) {
  using C = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
  if (args.op == CombineOp::pairwise_sum) return combine_pairwise<C, T, O>(args.terms, args.out);
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, std::int64_t>) {
    if (args.op == CombineOp::mean) return combine_in<std::int64_t, T, O>(args);
  }
  combine_in<C, T, O>(args);
}

void combine(const CombineArgs& args) {
  if (args.out.numel() == 0) return;
  visit_dtype(args.terms.front().dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (args.out.dtype() == dtype_of<T>()) return combine_as<T, T>(args);
    if constexpr (!std::is_arithmetic_v<T>) combine_as<T, float>(args);
  });
}

}  // namespace

void add_combine(KernelTable& table) { table.combine = combine; }

}  // namespace keel::cuda
