#include <algorithm>
#include <limits>

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/rows.h"

namespace keel::cpu {
namespace {

struct Add {
  template <class A>
  A operator()(A a, A b) const {
    return static_cast<A>(a + b);
  }
};
struct Maximum {
  template <class A>
  A operator()(A a, A b) const {
    return b > a || b != b ? b : a;
  }
};
struct Minimum {
  template <class A>
  A operator()(A a, A b) const {
    return b < a || b != b ? b : a;
  }
};

// Elements whose sums stay in the first-level cache while the terms pass by.
constexpr std::int64_t kBlock = 1024;

template <class T, class O, class Op>
void combine_block(const CombineArgs& args, std::int64_t begin, std::int64_t count, const Op& op) {
  using A = Accumulator<T>;
  alignas(64) A sums[kBlock];
  const T* first = args.terms.front().data<T>() + begin;
  for (std::int64_t i = 0; i < count; ++i) sums[i] = widen(first[i]);
  for (const Tensor& tensor : args.terms.subspan(1)) {
    const T* const term = tensor.data<T>() + begin;
    for (std::int64_t i = 0; i < count; ++i) sums[i] = op(sums[i], widen(term[i]));
  }
  O* const out = args.out.data<O>() + begin;
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<O>(sums[i]);
}

template <class T, class O, class Op>
void combine_all(const CombineArgs& args, const Op& op) {
  const std::int64_t n = args.out.numel();
  parallel_for(args.out.context(), n, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; at += kBlock) combine_block<T, O>(args, at, std::min(kBlock, end - at), op);
  });
}

template <class T, class O>
void combine_as(const CombineArgs& args) {
  switch (args.op) {
    case CombineOp::sum: return combine_all<T, O>(args, Add{});
    case CombineOp::maximum: return combine_all<T, O>(args, Maximum{});
    case CombineOp::minimum: return combine_all<T, O>(args, Minimum{});
  }
}

void combine(const CombineArgs& args) {
  visit_dtype(args.terms.front().dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (args.out.dtype() == dtype_of<T>()) return combine_as<T, T>(args);
    if constexpr (std::is_same_v<Accumulator<T>, float>) combine_as<T, float>(args);
  });
}

}  // namespace

void add_combine(KernelTable& table) { table.combine = combine; }

}  // namespace keel::cpu
