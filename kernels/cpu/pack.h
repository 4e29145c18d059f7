#pragma once
// Packing: copies a block of a matrix into the panels that the micro-kernel reads in order.
//
// A panel holds Width rows of the operand (columns, for B) as (steps, Width): all units of one step
// of k lie side by side. Numbers are widened or paired on the way, whatever the operand's layout.

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "keel/kernels/cpu/gemm.h"
#include "keel/kernels/cpu/microkernel.h"
#include "keel/kernels/cpu/shuffle.h"

namespace keel::cpu {

// The unit made of the numbers at k and k + 1; a WideProduct uses the first alone.
template <class P, class T>
typename P::Unit make_unit(T first, [[maybe_unused]] T second) {
  if constexpr (P::kDepth == 1) {
    return static_cast<typename P::Unit>(first);
  } else {
    bf16 low, high;
    if constexpr (std::is_same_v<T, bf16>) low = first, high = second;
    else low = bf16(static_cast<float>(first)), high = bf16(static_cast<float>(second));
    return static_cast<std::uint32_t>(low.bits) | static_cast<std::uint32_t>(high.bits) << 16;
  }
}

// `count` units along k from consecutive numbers.
template <class P, int count, class T>
void load_units(const T* from, typename P::Unit* units) {
  if constexpr (sizeof(T) * P::kDepth == sizeof(typename P::Unit)) {
    std::memcpy(units, from, count * sizeof(typename P::Unit));
  } else {
    for (int s = 0; s < count; ++s) units[s] = make_unit<P>(from[s * P::kDepth], from[s * P::kDepth + P::kDepth - 1]);
  }
}

// Element w of the result is element from(w) of a and b side by side.
template <int N, auto from, class V>
V shuffle(V a, V b) {
  return [&]<int... W>(std::integer_sequence<int, W...>) { return shuffled<from(W)...>(a, b); }
  (std::make_integer_sequence<int, N>{});
}

// Four rows of kLanes units become kLanes steps of four units: out[s * width + i] = row_i[s].
template <class Unit>
void transpose_four_rows(const Unit (&rows)[4][kLanes<Unit>], std::int64_t width, Unit* out) {
  constexpr int lanes = kLanes<Unit>;
  if constexpr (sizeof(Unit) == 4) {
    using V = Vector<Unit>;
    // Within each 128-bit lane: interleave by one, then by two.
    constexpr auto low = [](int l) { return (l & ~3) + (l & 3) / 2 + (l & 1) * lanes; };
    constexpr auto high = [](int l) { return (l & ~3) + (l & 3) / 2 + (l & 1) * lanes + 2; };
    constexpr auto low_pair = [](int l) { return (l & ~3) + (l & 1) + (l & 3) / 2 * lanes; };
    constexpr auto high_pair = [](int l) { return (l & ~3) + (l & 1) + (l & 3) / 2 * lanes + 2; };
    const V r0 = load_vector<Unit>(rows[0]), r1 = load_vector<Unit>(rows[1]);
    const V r2 = load_vector<Unit>(rows[2]), r3 = load_vector<Unit>(rows[3]);
    const V low01 = shuffle<lanes, low>(r0, r1), high01 = shuffle<lanes, high>(r0, r1);
    const V low23 = shuffle<lanes, low>(r2, r3), high23 = shuffle<lanes, high>(r2, r3);
    Unit steps[4][lanes];
    store_vector<Unit>(steps[0], shuffle<lanes, low_pair>(low01, low23));
    store_vector<Unit>(steps[1], shuffle<lanes, high_pair>(low01, low23));
    store_vector<Unit>(steps[2], shuffle<lanes, low_pair>(high01, high23));
    store_vector<Unit>(steps[3], shuffle<lanes, high_pair>(high01, high23));
    for (int l = 0; l < lanes; l += 4) {
      for (int q = 0; q < 4; ++q) std::memcpy(out + (l + q) * width, steps[q] + l, 4 * sizeof(Unit));
    }
  } else {
    for (int s = 0; s < lanes; ++s) {
      for (int i = 0; i < 4; ++i) out[s * width + i] = rows[i][s];
    }
  }
}

// One panel of rows that are consecutive along k. `rows` <= Width, multiples of four at a time.
template <class P, int Width, class T>
void pack_panel_along_k(const T* x, std::int64_t row_stride, int rows, std::int64_t k, typename P::Unit* out) {
  using Unit = typename P::Unit;
  constexpr int lanes = kLanes<Unit>;
  const std::int64_t steps = (k + P::kDepth - 1) / P::kDepth;
  const std::int64_t whole = k / (lanes * P::kDepth) * lanes;
  const int fours = rows & ~3;
  for (int i = 0; i < fours; i += 4) {
    for (std::int64_t s = 0; s < whole; s += lanes) {
      alignas(kVectorBytes) Unit block[4][lanes];
      for (int r = 0; r < 4; ++r) load_units<P, lanes>(x + (i + r) * row_stride + s * P::kDepth, block[r]);
      transpose_four_rows(block, Width, out + s * Width + i);
    }
  }
  for (int i = 0; i < rows; ++i) {
    const T* row = x + i * row_stride;
    for (std::int64_t s = i < fours ? whole : 0; s < steps; ++s) {
      const std::int64_t at = s * P::kDepth;
      const T second = at + 1 < k ? row[at + P::kDepth - 1] : T(0.0f);
      out[s * Width + i] = make_unit<P>(row[at], second);
    }
  }
  for (int i = rows; i < Width; ++i) {
    for (std::int64_t s = 0; s < steps; ++s) out[s * Width + i] = 0;
  }
}

template <class T, int N>
struct ShortVector {
  using Type [[gnu::vector_size(sizeof(T) * N)]] = T;
};

// N units of the numbers first[i] (at k) and second[i] (at k + 1), for N neighbouring rows. Written on
// vectors where it matters: the compiler leaves loops of twelve scalar.
template <class P, int N, class T>
void store_units(const T* first, const T* second, typename P::Unit* out) {
  using Words = typename ShortVector<std::uint32_t, N>::Type;
  using Halves = typename ShortVector<std::uint16_t, N>::Type;
  const auto words_of = [](const T* from) {
    Words words;
    if constexpr (std::is_same_v<T, bf16>) {
      Halves halves;
      std::memcpy(&halves, from, sizeof halves);
      words = __builtin_convertvector(halves, Words);
    } else {  // rounded as the conversion of bf16 does it
      std::memcpy(&words, from, sizeof words);
      const Words rounded = (words + 0x7fffu + ((words >> 16) & 1u)) >> 16;
      words = (words & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u - Words{} : rounded;
    }
    return words;
  };
  if constexpr (std::is_same_v<T, typename P::Unit>) {
    std::memcpy(out, first, N * sizeof(T));
  } else if constexpr (P::kDepth == 2 && std::is_same_v<T, bf16> && N == 8) {
    Halves low, high;
    std::memcpy(&low, first, sizeof low);
    std::memcpy(&high, second, sizeof high);
    constexpr auto left = [](int w) { return w / 2 + w % 2 * N; };
    constexpr auto right = [](int w) { return w / 2 + w % 2 * N + N / 2; };
    const Halves before = shuffle<N, left>(low, high), after = shuffle<N, right>(low, high);
    std::memcpy(out, &before, sizeof before);
    std::memcpy(out + N / 2, &after, sizeof after);
  } else if constexpr (P::kDepth == 2) {
    const Words units = words_of(first) | words_of(second) << 16;
    std::memcpy(out, &units, sizeof units);
  } else if constexpr (std::is_same_v<T, bf16>) {
    const Words units = words_of(first) << 16;
    std::memcpy(out, &units, sizeof units);
  } else if constexpr (std::is_same_v<T, f16>) {  // widened as the conversion of f16 does it
    using Floats = typename ShortVector<float, N>::Type;
    Halves halves;
    std::memcpy(&halves, first, sizeof halves);
    const Words bits = __builtin_convertvector(halves, Words);
    const Words magnitude = (bits & 0x7fffu) << 13;
    const Words finite = (Words)((Floats)magnitude * 0x1p112f);
    const Words units = (magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite) | (bits & 0x8000u) << 16;
    std::memcpy(out, &units, sizeof units);
  } else {
    for (int w = 0; w < N; ++w) out[w] = make_unit<P>(first[w], second[w]);
  }
}

// One step of a panel: the units of its first `count` rows.
template <class P, int Width, class T>
void pack_step(const T* first, const T* second, std::int64_t count, typename P::Unit* out) {
  if (count >= Width) {
    constexpr int kEights = Width / 8 * 8;
    for (int w = 0; w < kEights; w += 8) store_units<P, 8>(first + w, second + w, out + w);
    if constexpr (kEights < Width) store_units<P, 4>(first + kEights, second + kEights, out + kEights);
  } else {
    for (int w = 0; w < Width; ++w) out[w] = w < count ? make_unit<P>(first[w], second[w]) : 0;
  }
}

// All panels of rows that are consecutive across k (element (i, p) at x[i + p * k_stride]): step by
// step, so that each row of memory is read once from end to end.
template <class P, int Width, class T>
void pack_across_k(const T* x, std::int64_t k_stride, std::int64_t rows, std::int64_t k, typename P::Unit* out) {
  static constexpr T kZeros[Width] = {};
  const std::int64_t steps = (k + P::kDepth - 1) / P::kDepth;
  for (std::int64_t s = 0; s < steps; ++s) {
    const std::int64_t at = s * P::kDepth;
    const bool single = at + P::kDepth > k;  // an odd last number is paired with zero
    const T* first = x + at * k_stride;
    for (std::int64_t i = 0; i < rows; i += Width)
      pack_step<P, Width>(first + i, single ? kZeros : first + i + (P::kDepth - 1) * k_stride, rows - i,
                          out + i * steps + s * Width);
  }
}

// Packs x: (rows, k) into ceil(rows / Width) panels.
template <class P, int Width, class T>
void pack(MatrixView<T> x, std::int64_t rows, std::int64_t k, typename P::Unit* out) {
  const std::int64_t steps = (k + P::kDepth - 1) / P::kDepth;
  if (x.row == 1 && x.col != 1) return pack_across_k<P, Width>(x.data, x.col, rows, k, out);
  for (std::int64_t i = 0; i < rows; i += Width, out += steps * Width) {
    const int count = static_cast<int>(std::min<std::int64_t>(Width, rows - i));
    const T* panel = x.data + i * x.row;
    if (x.col == 1) {
      pack_panel_along_k<P, Width>(panel, x.row, count, k, out);
      continue;
    }
    for (std::int64_t s = 0; s < steps; ++s) {
      for (int w = 0; w < Width; ++w) {
        const T* first = panel + w * x.row + s * P::kDepth * x.col;
        const bool pair = P::kDepth == 2 && s * 2 + 1 < k;
        out[s * Width + w] = w < count ? make_unit<P>(*first, pair ? first[x.col] : T(0.0f)) : 0;
      }
    }
  }
}

}  // namespace keel::cpu
