#include "keel/kernels/cpu/microkernel.h"

#include <array>
#include <utility>

// This file alone is compiled with -ffp-contract=fast: a * b + sum on vectors means one fused operation.
namespace keel::cpu {
namespace {

template <class P, int Rows, int Vectors>
void multiply_tile(std::int64_t steps, const typename P::Unit* a, const typename P::Unit* b, typename P::Sum alpha,
                   bool add, typename P::Sum* c, std::int64_t ldc) {
  using Unit = typename P::Unit;
  using Sum = typename P::Sum;
  Vector<Sum> sums[Rows][Vectors] = {};
  for (std::int64_t s = 0; s < steps; ++s, a += kTileRows, b += kTileColumns<P>) {
    Vector<Unit> row[Vectors];
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) row[j] = load_vector<Unit>(b + j * kLanes<Unit>);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; ++j) sums[i][j] = P::multiply_add(a[i], row[j], sums[i][j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) {
      Sum* target = c + i * ldc + j * kLanes<Sum>;
      store_vector<Sum>(target, add ? alpha * sums[i][j] + load_vector<Sum>(target) : alpha * sums[i][j]);
    }
  }
}

template <class P>
using TileTable = std::array<std::array<TileKernel<P>, kTileVectors>, kTileRows>;

template <class P, int Rows, int... Vectors>
constexpr std::array<TileKernel<P>, kTileVectors> kernels_of_rows(std::integer_sequence<int, Vectors...>) {
  return {multiply_tile<P, Rows, Vectors + 1>...};
}
template <class P, int... Rows>
constexpr TileTable<P> all_kernels(std::integer_sequence<int, Rows...>) {
  return {kernels_of_rows<P, Rows + 1>(std::make_integer_sequence<int, kTileVectors>{})...};
}
}  // namespace

template <class P>
TileKernel<P> tile_kernel(std::int64_t rows, std::int64_t vectors) {
  static constexpr TileTable<P> kernels = all_kernels<P>(std::make_integer_sequence<int, kTileRows>{});
  return kernels[static_cast<std::size_t>(rows - 1)][static_cast<std::size_t>(vectors - 1)];
}

template TileKernel<WideProduct<float>> tile_kernel<WideProduct<float>>(std::int64_t, std::int64_t);
template TileKernel<WideProduct<double>> tile_kernel<WideProduct<double>>(std::int64_t, std::int64_t);
#if defined(__AVX512BF16__)
template TileKernel<PairProduct> tile_kernel<PairProduct>(std::int64_t, std::int64_t);
#endif

}  // namespace keel::cpu
