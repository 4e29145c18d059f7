#pragma once
// The innermost product: one register tile of C from packed panels of A and B.
//
// Tiles are kTileRows x kTileVectors vectors of sums (keel/kernels/cpu/sizes.h). Each step loads fewer operands than it
// multiplies, so the multipliers are what limits (Goto and van de Geijn 2008).

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "keel/kernels/cpu/sizes.h"
#include "keel/runtime/half.h"

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif

namespace keel::cpu {

inline constexpr int kVectorBytes = kTile.vector_bytes;
inline constexpr int kTileRows = kTile.rows;
inline constexpr int kTileVectors = kTile.vectors;

template <class T>
struct VectorOf {
  using Type [[gnu::vector_size(kVectorBytes)]] = T;
};
template <class T>
using Vector = typename VectorOf<T>::Type;
template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <class T>
Vector<T> load_vector(const void* from) {
  Vector<T> value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void store_vector(void* to, Vector<T> value) {
  std::memcpy(to, &value, sizeof value);
}

#if defined(__AVX512BF16__)
// Rounds 32 sums to bf16 as the conversion of bf16 does, except that results below 2^-126 become zero.
inline void store_rounded(Vector<float> low, Vector<float> high, bf16* to) {
  const __m512bh rounded = _mm512_cvtne2ps_pbh(high, low);
  std::memcpy(to, &rounded, sizeof rounded);
}
#endif

// How packed numbers are multiplied. A Unit holds kDepth consecutive numbers along k; one step of
// the micro-kernel consumes one unit of each row and column.
// a * b + sum, rounded once: by an instruction where it has a name. Elsewhere microkernel.cpp's -ffp-contract=fast
// fuses the two operations, which compilers do only where nothing, such as a sanitizer's check, lies between them.
template <class T>
Vector<T> fused(T a, Vector<T> b, Vector<T> sum) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float>) return _mm512_fmadd_ps(_mm512_set1_ps(a), b, sum);
  else return _mm512_fmadd_pd(_mm512_set1_pd(a), b, sum);
#elif defined(__FMA__)
  if constexpr (std::is_same_v<T, float>) return _mm256_fmadd_ps(_mm256_set1_ps(a), b, sum);
  else return _mm256_fmadd_pd(_mm256_set1_pd(a), b, sum);
#else
  return a * b + sum;
#endif
}

template <class T>
struct WideProduct {  // fp32 and fp64; narrower floats are widened while they are packed
  using Unit = T;
  using Sum = T;
  static constexpr int kDepth = 1;
  static Vector<Sum> multiply_add(Unit a, Vector<Unit> b, Vector<Sum> sum) { return fused(a, b, sum); }
};

#if defined(__AVX512BF16__)
// Pairs of bf16 with fp32 sums: twice the products of an fp32 step in the same time.
struct PairProduct {
  using Unit = std::uint32_t;
  using Sum = float;
  static constexpr int kDepth = 2;
  static Vector<Sum> multiply_add(Unit a, Vector<Unit> b, Vector<Sum> sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(static_cast<int>(a)), (__m512bh)b);
  }
};
#endif

template <class T>
struct ProductOf {
  using Type = WideProduct<float>;
};
template <>
struct ProductOf<double> {
  using Type = WideProduct<double>;
};
#if defined(__AVX512BF16__)
template <>
struct ProductOf<bf16> {
  using Type = PairProduct;
};
#endif
template <class T>
using Product = typename ProductOf<T>::Type;

template <class P>
inline constexpr int kTileColumns = kTile.columns(sizeof(typename P::Sum));

// c[i][j] = alpha * sum_s a[i][s] b[s][j] (+ c[i][j] with `add`), rounded to Out. Row i of A starts at
// a + i * a_row and is dense along k, unless A is packed: then it is a panel (steps, kTileRows).
// b: panel (steps, kTileColumns); c: row stride ldc.
template <class P, class Out>
using TileKernel = void (*)(std::int64_t steps, const typename P::Unit* a, std::int64_t a_row,
                            const typename P::Unit* b, typename P::Sum alpha, bool add, Out* c, std::int64_t ldc);

// The kernel for the given rows (1 to kTileRows) and vectors (1 to kTileVectors): edges do no idle work.
// Out is P::Sum; also bf16 with PairProduct, for whole tiles.
template <class P, class Out>
TileKernel<P, Out> tile_kernel(bool packed, std::int64_t rows, std::int64_t vectors);

}  // namespace keel::cpu
