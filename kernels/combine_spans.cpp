#include "keel/kernels/combine_spans.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "keel/kernels/widen.h"

namespace keel {
namespace {

struct SumOfTerms {
  template <class A>
  A operator()(A a, A b) const {
    return static_cast<A>(a + b);
  }
};
struct MaximumOfTerms {
  template <class A>
  A operator()(A a, A b) const {
    return b > a || b != b ? b : a;
  }
};
struct MinimumOfTerms {
  template <class A>
  A operator()(A a, A b) const {
    return b < a || b != b ? b : a;
  }
};

// Elements whose sums stay in the first-level cache while the terms pass by.
constexpr std::int64_t kBlock = 1024;

template <class T, class O, class Op>
void combine_block(std::span<const std::byte* const> terms, std::int64_t begin, std::int64_t count, const Op& op,
                   O* result) {
  using A = Accumulator<T>;
  const auto term = [&](std::size_t i) { return reinterpret_cast<const T*>(terms[i]) + begin; };
  const T* const a = term(0);
  if (terms.size() == 1) {
    for (std::int64_t i = 0; i < count; ++i) result[i] = static_cast<O>(widen(a[i]));
    return;
  }
  const T* const b = term(1);
  if (terms.size() == 2) {
    for (std::int64_t i = 0; i < count; ++i) result[i] = static_cast<O>(op(widen(a[i]), widen(b[i])));
    return;
  }
  alignas(64) A sums[kBlock];
  for (std::int64_t i = 0; i < count; ++i) sums[i] = op(widen(a[i]), widen(b[i]));
  for (std::size_t k = 2; k + 1 < terms.size(); ++k) {
    const T* const more = term(k);
    for (std::int64_t i = 0; i < count; ++i) sums[i] = op(sums[i], widen(more[i]));
  }
  const T* const last = term(terms.size() - 1);
  for (std::int64_t i = 0; i < count; ++i) result[i] = static_cast<O>(op(sums[i], widen(last[i])));
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
void combine_as(CombineOp op, std::span<const std::byte* const> terms, std::span<std::byte* const> results,
                std::int64_t begin, std::int64_t end) {
  switch (op) {
    case CombineOp::sum: return combine_all<T, O>(terms, results, begin, end, SumOfTerms{});
    case CombineOp::maximum: return combine_all<T, O>(terms, results, begin, end, MaximumOfTerms{});
    case CombineOp::minimum: return combine_all<T, O>(terms, results, begin, end, MinimumOfTerms{});
  }
}

}  // namespace

void combine_spans(const CombineSpans& args, std::span<const std::byte* const> terms,
                   std::span<std::byte* const> results, std::int64_t begin, std::int64_t end) {
  if (terms.size() == 1 && args.dtype == args.result_dtype) {
    const std::size_t first = static_cast<std::size_t>(begin) * size_of(args.dtype);
    for (std::byte* const result : results)
      if (result != terms[0])
        std::memmove(result + first, terms[0] + first, static_cast<std::size_t>(end - begin) * size_of(args.dtype));
    return;
  }
  visit_dtype(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (args.result_dtype == args.dtype) return combine_as<T, T>(args.op, terms, results, begin, end);
    if constexpr (std::is_same_v<Accumulator<T>, float>) combine_as<T, float>(args.op, terms, results, begin, end);
  });
}

}  // namespace keel
