// Products with a right operand that is packed once and multiplied many times, in the calling thread.

#include <algorithm>

#include "keel/kernels/cpu/block_product.h"
#include "keel/kernels/cpu/gemm.h"
#include "keel/kernels/cpu/pack.h"

namespace keel::cpu {

template <class T>
std::int64_t packed_right_units(std::int64_t k, std::int64_t n) {
  return steps_of<Product<T>>(k) * round_up(n, kTileColumns<Product<T>>);
}

template <class T>
std::int64_t left_workspace_units(std::int64_t m, std::int64_t k) {
  return std::min(steps_of<Product<T>>(k), kBlockSteps) * round_up(m, kTileRows);
}

template <class T, class Source>
void pack_right(MatrixView<Source> b, const PackedRight<T>& packed) {
  using P = Product<T>;
  const std::int64_t steps = steps_of<P>(packed.k), block = block_steps(steps);
  const std::int64_t padded = round_up(packed.n, kTileColumns<P>);
  for (std::int64_t s = 0; s < steps; s += block) {
    const std::int64_t k = std::min(packed.k, (s + block) * P::kDepth) - s * P::kDepth;
    pack<P, kTileColumns<P>>(b.at(s * P::kDepth, 0).transposed(), packed.n, k, packed.units + s * padded);
  }
}

template <class T, class Source>
void multiply_packed(std::int64_t m, std::int64_t n, std::int64_t k, Accumulator<T> alpha, MatrixView<Source> a,
                     const PackedRight<T>& b, bool accumulate, Accumulator<T>* c, std::int64_t ldc,
                     UnitOf<T>* workspace, PackedOrigin origin) {
  using P = Product<T>;
  const std::int64_t all_steps = steps_of<P>(b.k), block = block_steps(all_steps);
  const std::int64_t first = origin.row / P::kDepth, steps = first + steps_of<P>(k);
  const std::int64_t padded = round_up(b.n, kTileColumns<P>);
  const bool in_place = readable_in_place<P>(a, m, n, k);
  std::int64_t s = first;
  do {
    const std::int64_t block_begin = s / block * block, block_end = std::min(steps, block_begin + block);
    const std::int64_t packed_steps = std::min(all_steps, block_begin + block) - block_begin;
    const std::int64_t column = (s - first) * P::kDepth;
    const MatrixView<Source> left = a.at(0, column);
    if (!in_place) pack<P, kTileRows>(left, m, std::min(k, (block_end - first) * P::kDepth) - column, workspace);
    BlockProduct<P> product;
    product.m = m;
    product.n = n;
    product.steps = block_end - s;
    product.a = in_place ? left_in_place<P>(left) : Left<P>{workspace};
    product.b = b.units + block_begin * padded + origin.column * packed_steps + (s - block_begin) * kTileColumns<P>;
    product.b_stride = packed_steps * kTileColumns<P>;
    product.alpha = alpha;
    product.add = accumulate || s > first;
    product.c = c;
    product.ldc = ldc;
    product.run();
    s = block_end;
  } while (s < steps);
}

#define KEEL_INSTANTIATE_SIZES(T)                                          \
  template std::int64_t packed_right_units<T>(std::int64_t, std::int64_t); \
  template std::int64_t left_workspace_units<T>(std::int64_t, std::int64_t)
KEEL_INSTANTIATE_SIZES(float);
KEEL_INSTANTIATE_SIZES(double);
KEEL_INSTANTIATE_SIZES(bf16);
KEEL_INSTANTIATE_SIZES(f16);
#undef KEEL_INSTANTIATE_SIZES

#define KEEL_INSTANTIATE_PACKED(T, Source)                                                                   \
  template void pack_right<T, Source>(MatrixView<Source>, const PackedRight<T>&);                            \
  template void multiply_packed<T, Source>(std::int64_t, std::int64_t, std::int64_t, Accumulator<T>,         \
                                           MatrixView<Source>, const PackedRight<T>&, bool, Accumulator<T>*, \
                                           std::int64_t, UnitOf<T>*, PackedOrigin)
KEEL_INSTANTIATE_PACKED(float, float);
KEEL_INSTANTIATE_PACKED(double, double);
KEEL_INSTANTIATE_PACKED(bf16, bf16);
KEEL_INSTANTIATE_PACKED(bf16, float);
KEEL_INSTANTIATE_PACKED(f16, f16);
KEEL_INSTANTIATE_PACKED(f16, float);
#undef KEEL_INSTANTIATE_PACKED

}  // namespace keel::cpu
