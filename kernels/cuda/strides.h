#pragma once
// Where the elements of a tensor lie, as kernels see it: row-major numbers turned into coordinates and offsets.

#include <bit>
#include <cstdint>

#include "keel/kernels/layout.h"
#include "keel/runtime/hd.h"

namespace keel::cuda {

// Division of numbers below 2^31 by one known before the launch, as a product and a shift: for k = ceil(log2 d),
// n / d = floor((floor(n m / 2^32) + n) / 2^k) with m = floor(2^32 (2^k - d) / d) + 1 (Granlund and Montgomery 1994,
// "Division by invariant integers using multiplication").
struct Divisor {
  std::uint32_t multiplier = 1, shift = 0;

  Divisor() = default;
  explicit Divisor(std::uint32_t divisor) : shift(static_cast<std::uint32_t>(std::bit_width(divisor - 1))) {
    const std::uint64_t above = (std::uint64_t{1} << shift) - divisor;
    multiplier = static_cast<std::uint32_t>((above << 32) / divisor + 1);
  }
  KEEL_HD std::uint32_t quotient(std::uint32_t n) const {
    const auto high = static_cast<std::uint32_t>((std::uint64_t{n} * multiplier) >> 32);
    return (high + n) >> shift;
  }
};

struct Shape {
  int rank = 1;
  bool small = true;  // below 2^31 elements
  std::int64_t extents[kMaxRank] = {};
  Divisor divisors[kMaxRank];

  Shape() = default;
  explicit Shape(const Dims& shape) : rank(shape.size()), small(product(shape) < INT32_MAX) {
    for (int d = 0; d < rank; ++d) {
      extents[d] = shape[d];
      if (small && shape[d] > 0) divisors[d] = Divisor(static_cast<std::uint32_t>(shape[d]));
    }
  }

  // Calls f(d, coordinate) for each dimension of the element of row-major number i. A rank of at least 1.
  template <class F>
  KEEL_HD void for_each_coordinate(std::int64_t i, const F& f) const {
    if (small) {
      auto left = static_cast<std::uint32_t>(i);
      for (int d = rank - 1; d > 0; --d) {
        const std::uint32_t rest = divisors[d].quotient(left);
        f(d, static_cast<std::int64_t>(left - rest * static_cast<std::uint32_t>(extents[d])));
        left = rest;
      }
      f(0, static_cast<std::int64_t>(left));
    } else {
      for (int d = rank - 1; d > 0; --d) {
        const std::int64_t rest = i / extents[d];
        f(d, i - rest * extents[d]);
        i = rest;
      }
      f(0, i);
    }
  }
};

// The coordinates of the element of row-major number i in a shape of three dimensions.
struct Place {
  std::int64_t outer = 0, row = 0, column = 0;

  KEEL_HD Place(const Shape& shape, std::int64_t i) {
    shape.for_each_coordinate(i, [this](int d, std::int64_t at) {
      if (d == 0) outer = at;
      else if (d == 1) row = at;
      else column = at;
    });
  }
};

struct Strides {
  Shape shape;
  std::int64_t strides[kMaxRank] = {1};

  Strides() = default;
  explicit Strides(const Layout& layout) : shape(layout.shape) {
    for (int d = 0; d < shape.rank; ++d) strides[d] = layout.strides[d];
  }

  // The offset of the element of row-major number i.
  KEEL_HD std::int64_t offset_of(std::int64_t i) const {
    std::int64_t offset = 0;
    shape.for_each_coordinate(i, [&](int d, std::int64_t at) { offset += at * strides[d]; });
    return offset;
  }
};

}  // namespace keel::cuda
