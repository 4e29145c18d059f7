#include "keel/kernels/cpu/microkernel.h"

#include <array>
#include <utility>

// This file alone is compiled with -ffp-contract=fast: a * b + sum on vectors means one fused operation.
namespace keel::cpu {
namespace {

template <class P, class Out, bool Packed, int Rows, int Vectors>
void multiply_tile(std::int64_t steps, const typename P::Unit* a, std::int64_t a_row, const typename P::Unit* b,
                   typename P::Sum alpha, [[maybe_unused]] bool add, Out* c, std::int64_t ldc) {
  using Unit = typename P::Unit;
  using Sum = typename P::Sum;
  // Rows of an unpacked A are reached from every third: base, base + stride and base + 2 * stride
  // are addresses that one instruction can form, and the pointers fit the registers.
  constexpr int kBases = Packed ? 1 : (Rows + 2) / 3;
  const Unit* bases[kBases];
  for (int i = 0; i < kBases; ++i) bases[i] = a + 3 * i * a_row;
  const auto element = [&](int i) {
    Unit value;
    std::memcpy(&value, Packed ? bases[0] + i : bases[i / 3] + i % 3 * a_row, sizeof value);
    return value;
  };
  Vector<Sum> sums[Rows][Vectors] = {};
  for (std::int64_t s = 0; s < steps; ++s, b += kTileColumns<P>) {
    Vector<Unit> row[Vectors];
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) row[j] = load_vector<Unit>(b + j * kLanes<Unit>);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Unit left = element(i);
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; ++j) sums[i][j] = P::multiply_add(left, row[j], sums[i][j]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kBases; ++i) bases[i] += Packed ? kTileRows : 1;
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    if constexpr (std::is_same_v<Out, Sum>) {
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; ++j) {
        Sum* target = c + i * ldc + j * kLanes<Sum>;
        store_vector<Sum>(target, add ? alpha * sums[i][j] + load_vector<Sum>(target) : alpha * sums[i][j]);
      }
    } else {
      store_rounded(alpha * sums[i][0], alpha * sums[i][1], c + i * ldc);
    }
  }
}

template <class P, class Out>
using TileTable = std::array<std::array<TileKernel<P, Out>, kTileVectors>, kTileRows>;

template <class P, bool Packed, int Rows, int... Vectors>
constexpr std::array<TileKernel<P, typename P::Sum>, kTileVectors> kernels_of_rows(
    std::integer_sequence<int, Vectors...>) {
  return {multiply_tile<P, typename P::Sum, Packed, Rows, Vectors + 1>...};
}
template <class P, bool Packed, int... Rows>
constexpr TileTable<P, typename P::Sum> all_kernels(std::integer_sequence<int, Rows...>) {
  return {kernels_of_rows<P, Packed, Rows + 1>(std::make_integer_sequence<int, kTileVectors>{})...};
}

}  // namespace

template <class P, class Out>
TileKernel<P, Out> tile_kernel(bool packed, std::int64_t rows, std::int64_t vectors) {
  if constexpr (std::is_same_v<Out, typename P::Sum>) {
    static constexpr auto kPanels = all_kernels<P, true>(std::make_integer_sequence<int, kTileRows>{});
    static constexpr auto kRows = all_kernels<P, false>(std::make_integer_sequence<int, kTileRows>{});
    return (packed ? kPanels : kRows)[static_cast<std::size_t>(rows - 1)][static_cast<std::size_t>(vectors - 1)];
  } else {
    return packed ? multiply_tile<P, Out, true, kTileRows, kTileVectors>
                  : multiply_tile<P, Out, false, kTileRows, kTileVectors>;
  }
}

template TileKernel<WideProduct<float>, float> tile_kernel<WideProduct<float>, float>(bool, std::int64_t, std::int64_t);
template TileKernel<WideProduct<double>, double> tile_kernel<WideProduct<double>, double>(bool, std::int64_t,
                                                                                          std::int64_t);
#if defined(__AVX512BF16__)
template TileKernel<PairProduct, float> tile_kernel<PairProduct, float>(bool, std::int64_t, std::int64_t);
template TileKernel<PairProduct, bf16> tile_kernel<PairProduct, bf16>(bool, std::int64_t, std::int64_t);
#endif

}  // namespace keel::cpu
