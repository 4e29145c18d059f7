#pragma once
// The largest number and where it stands, for argmax and top-k: NaN is larger than any number, and of equal ones the
// first wins.

#include <cstdint>
#include <limits>

#include "keel/kernels/cuda/device.h"

namespace keel::cuda {

template <class C>
struct Best {
  C value;
  std::int64_t index;

  // Worse than any element.
  static __device__ Best none() {
    using Limits = std::numeric_limits<C>;
    return {Limits::has_infinity ? -Limits::infinity() : Limits::lowest(), INT64_MAX};
  }
  __device__ bool before(const Best& other) const {
    const bool nan = value != value, other_nan = other.value != other.value;
    if (nan != other_nan) return nan;
    if (!nan && value != other.value) return value > other.value;
    return index < other.index;
  }
};

struct BestOf {
  template <class C>
  __device__ Best<C> operator()(const Best<C>& a, const Best<C>& b) const {
    return b.before(a) ? b : a;
  }
};

// reduce_warp() and reduce_block() look this up.
template <class C>
__device__ Best<C> exchange(const Best<C>& value, int distance) {
  return {exchange(value.value, distance), exchange(value.index, distance)};
}

}  // namespace keel::cuda
