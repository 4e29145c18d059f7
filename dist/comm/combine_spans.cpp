#include "keel/dist/comm/combine_spans.h"

#include <algorithm>
#include <cstring>

#include "keel/runtime/dtype.h"

namespace keel {
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

template <class T>
Accumulator<T> widened(T value) {
  return static_cast<Accumulator<T>>(value);
}

// Elements whose sums stay in the first-level cache while the terms pass by.
constexpr std::int64_t kBlock = 1024;

template <class T, class Op>
void combine_block(std::span<const std::byte* const> terms, std::int64_t begin, std::int64_t count, const Op& op,
                   T* result) {
  using A = Accumulator<T>;
  const auto term = [&](std::size_t i) { return reinterpret_cast<const T*>(terms[i]) + begin; };
  if (terms.size() == 2) {
    const T *const a = term(0), *const b = term(1);
    for (std::int64_t i = 0; i < count; ++i) result[i] = static_cast<T>(op(widened(a[i]), widened(b[i])));
    return;
  }
  alignas(64) A sums[kBlock];
  const T *const a = term(0), *const b = term(1);
  for (std::int64_t i = 0; i < count; ++i) sums[i] = op(widened(a[i]), widened(b[i]));
  for (std::size_t k = 2; k + 1 < terms.size(); ++k) {
    const T* const more = term(k);
    for (std::int64_t i = 0; i < count; ++i) sums[i] = op(sums[i], widened(more[i]));
  }
  const T* const last = term(terms.size() - 1);
  for (std::int64_t i = 0; i < count; ++i) result[i] = static_cast<T>(op(sums[i], widened(last[i])));
}

template <class T, class Op>
void combine_all(std::span<const std::byte* const> terms, std::span<std::byte* const> results, std::int64_t begin,
                 std::int64_t end, const Op& op) {
  alignas(64) T block[kBlock];
  for (std::int64_t at = begin; at < end; at += kBlock) {
    const std::int64_t n = std::min(kBlock, end - at);
    combine_block(terms, at, n, op, block);
    for (std::byte* const result : results)
      std::memcpy(result + static_cast<std::size_t>(at) * sizeof(T), block, static_cast<std::size_t>(n) * sizeof(T));
  }
}

}  // namespace

void combine_spans(DType dtype, CombineOp op, std::span<const std::byte* const> terms,
                   std::span<std::byte* const> results, std::int64_t begin, std::int64_t end) {
  if (terms.size() == 1) {
    const std::size_t first = static_cast<std::size_t>(begin) * size_of(dtype);
    for (std::byte* const result : results)
      if (result != terms[0])
        std::memmove(result + first, terms[0] + first, static_cast<std::size_t>(end - begin) * size_of(dtype));
    return;
  }
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    switch (op) {
      case CombineOp::sum: return combine_all<T>(terms, results, begin, end, Add{});
      case CombineOp::maximum: return combine_all<T>(terms, results, begin, end, Maximum{});
      case CombineOp::minimum: return combine_all<T>(terms, results, begin, end, Minimum{});
    }
  });
}

}  // namespace keel
