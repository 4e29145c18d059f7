#include "keel/kernels/combine_spans.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "keel/kernels/widen.h"

namespace keel {
namespace {

// What terms are added in, and what becomes of their sum.
struct AsItIs {
  template <class T>
  using Wide = Accumulator<T>;
  template <class A>
  A finish(A sum) const {
    return sum;
  }
};
struct SumOfTerms : AsItIs {
  template <class A>
  A operator()(A a, A b) const {
    return static_cast<A>(a + b);
  }
};
struct MaximumOfTerms : AsItIs {
  template <class A>
  A operator()(A a, A b) const {
    return b > a || b != b ? b : a;
  }
};
struct MinimumOfTerms : AsItIs {
  template <class A>
  A operator()(A a, A b) const {
    return b < a || b != b ? b : a;
  }
};

struct ProductOfTerms : AsItIs {
  template <class A>
  A operator()(A a, A b) const {
    if constexpr (std::is_integral_v<A>)
      return static_cast<A>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    else return a * b;
  }
};
struct MeanOfTerms {
  std::int64_t divisor;
  template <class T>
  using Wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, Accumulator<T>>;
  template <class A>
  A operator()(A a, A b) const {
    return a + b;
  }
  template <class A>
  A finish(A sum) const {
    return sum / static_cast<A>(divisor);
  }
};

// Elements whose sums stay in the first-level cache while the terms pass by.
constexpr std::int64_t kBlock = 1024;

struct PairwiseSum {};

// The first 2^k terms, as many as leave some, are one side of the tree, and the others the other one.
template <class T, class A>
void add_pairwise(std::span<const std::byte* const> terms, std::int64_t begin, std::int64_t count, A* sums) {
  if (terms.size() == 1) {
    const T* const only = reinterpret_cast<const T*>(terms[0]) + begin;
    for (std::int64_t i = 0; i < count; ++i) sums[i] = widen<A>(only[i]);
    return;
  }
  const std::size_t half = std::bit_floor(terms.size() - 1);
  add_pairwise<T>(terms.first(half), begin, count, sums);
  alignas(64) A others[kBlock];
  add_pairwise<T>(terms.subspan(half), begin, count, others);
  for (std::int64_t i = 0; i < count; ++i) sums[i] = static_cast<A>(sums[i] + others[i]);
}

template <class T, class O>
void combine_block(std::span<const std::byte* const> terms, std::int64_t begin, std::int64_t count,
                   const PairwiseSum& /*op*/, O* result) {
  alignas(64) Accumulator<T> sums[kBlock];
  add_pairwise<T>(terms, begin, count, sums);
  for (std::int64_t i = 0; i < count; ++i) result[i] = static_cast<O>(sums[i]);
}

template <class T, class O, class Op>
void combine_block(std::span<const std::byte* const> terms, std::int64_t begin, std::int64_t count, const Op& op,
                   O* result) {
  using A = typename Op::template Wide<T>;
  const auto term = [&](std::size_t i) { return reinterpret_cast<const T*>(terms[i]) + begin; };
  const T* const a = term(0);
  if (terms.size() == 1) {
    for (std::int64_t i = 0; i < count; ++i) result[i] = static_cast<O>(op.finish(widen<A>(a[i])));
    return;
  }
  const T* const b = term(1);
  if (terms.size() == 2) {
    for (std::int64_t i = 0; i < count; ++i) result[i] = static_cast<O>(op.finish(op(widen<A>(a[i]), widen<A>(b[i]))));
    return;
  }
  alignas(64) A sums[kBlock];
  for (std::int64_t i = 0; i < count; ++i) sums[i] = op(widen<A>(a[i]), widen<A>(b[i]));
  for (std::size_t k = 2; k + 1 < terms.size(); ++k) {
    const T* const more = term(k);
    for (std::int64_t i = 0; i < count; ++i) sums[i] = op(sums[i], widen<A>(more[i]));
  }
  const T* const last = term(terms.size() - 1);
  for (std::int64_t i = 0; i < count; ++i) result[i] = static_cast<O>(op.finish(op(sums[i], widen<A>(last[i]))));
}

template <class T, class O, class Op>
void combine_all(std::span<const std::byte* const> terms, std::span<std::byte* const> results, std::int64_t begin,
                 std::int64_t end, const Op& op) {
  alignas(64) O block[kBlock];
  for (std::int64_t at = begin; at < end; at += kBlock) {
    const std::int64_t n = std::min(kBlock, end - at);
    combine_block<T>(terms, at, n, op, block);
    for (std::byte* const result : results)
      std::memcpy(result + static_cast<std::size_t>(at) * sizeof(O), block, static_cast<std::size_t>(n) * sizeof(O));
  }
}

template <class T, class O>
void combine_as(const CombineSpans& args, std::span<const std::byte* const> terms, std::span<std::byte* const> results,
                std::int64_t begin, std::int64_t end) {
  switch (args.op) {
    case CombineOp::sum: return combine_all<T, O>(terms, results, begin, end, SumOfTerms{});
    case CombineOp::maximum: return combine_all<T, O>(terms, results, begin, end, MaximumOfTerms{});
    case CombineOp::minimum: return combine_all<T, O>(terms, results, begin, end, MinimumOfTerms{});
    case CombineOp::product: return combine_all<T, O>(terms, results, begin, end, ProductOfTerms{});
    case CombineOp::mean: return combine_all<T, O>(terms, results, begin, end, MeanOfTerms{args.divisor});
    case CombineOp::pairwise_sum: return combine_all<T, O>(terms, results, begin, end, PairwiseSum{});
  }
}

}  // namespace

void combine_spans(const CombineSpans& given, std::span<const std::byte* const> terms,
                   std::span<std::byte* const> results, std::int64_t begin, std::int64_t end) {
  CombineSpans args = given;
  if (args.divisor == 0) args.divisor = static_cast<std::int64_t>(terms.size());
  const bool is_copy = terms.size() == 1 && (args.op != CombineOp::mean || args.divisor == 1);
  if (is_copy && args.dtype == args.result_dtype) {
    const std::size_t first = static_cast<std::size_t>(begin) * size_of(args.dtype);
    for (std::byte* const result : results)
      if (result != terms[0])
        std::memmove(result + first, terms[0] + first, static_cast<std::size_t>(end - begin) * size_of(args.dtype));
    return;
  }
  visit_dtype(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (args.result_dtype == args.dtype) return combine_as<T, T>(args, terms, results, begin, end);
    if constexpr (std::is_same_v<Accumulator<T>, float>) combine_as<T, float>(args, terms, results, begin, end);
  });
}

}  // namespace keel
