#pragma once
// Packing: copies a block of a matrix into the panels that the micro-kernel reads in order.
//
// A panel holds Width rows of the operand (columns, for B) as (steps, Width): all units of one step
// of k lie side by side. Numbers are widened or paired on the way, whatever the operand's layout.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "keel/kernels/cpu/gemm.h"
#include "keel/kernels/cpu/microkernel.h"

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

// Four rows of kLanes units become kLanes steps of four units: out[s * width + i] = row_i[s].
template <class Unit>
void transpose_four_rows(const Unit (&rows)[4][kLanes<Unit>], std::int64_t width, Unit* out) {
  constexpr int lanes = kLanes<Unit>;
  if constexpr (sizeof(Unit) == 4) {
    using V = Vector<Unit>;
    using Indices = Vector<std::int32_t>;
    // Within each 128-bit lane: interleave by one, then by two.
    Indices low, high, low_pair, high_pair;
    for (int l = 0; l < lanes; ++l) {
      const int lane = l & ~3, at = l & 3;
      low[l] = lane + at / 2 + (at & 1) * lanes;
      high[l] = low[l] + 2;
      low_pair[l] = lane + (at & 1) + (at / 2) * lanes;
      high_pair[l] = low_pair[l] + 2;
    }
    const V r0 = load_vector<Unit>(rows[0]), r1 = load_vector<Unit>(rows[1]);
    const V r2 = load_vector<Unit>(rows[2]), r3 = load_vector<Unit>(rows[3]);
    const V low01 = __builtin_shuffle(r0, r1, low), high01 = __builtin_shuffle(r0, r1, high);
    const V low23 = __builtin_shuffle(r2, r3, low), high23 = __builtin_shuffle(r2, r3, high);
    Unit steps[4][lanes];
    store_vector<Unit>(steps[0], __builtin_shuffle(low01, low23, low_pair));
    store_vector<Unit>(steps[1], __builtin_shuffle(low01, low23, high_pair));
    store_vector<Unit>(steps[2], __builtin_shuffle(high01, high23, low_pair));
    store_vector<Unit>(steps[3], __builtin_shuffle(high01, high23, high_pair));
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

// All panels of rows that are consecutive across k (element (i, p) at x[i + p * k_stride]): step by
// step, so that each row of memory is read once from end to end.
template <class P, int Width, class T>
void pack_across_k(const T* x, std::int64_t k_stride, std::int64_t rows, std::int64_t k, typename P::Unit* out) {
  const std::int64_t steps = (k + P::kDepth - 1) / P::kDepth;
  const auto pack_step = [&](std::int64_t s, const T* first, const T* second) {
    typename P::Unit* target = out + s * Width;
    std::int64_t i = 0;
    for (; i + Width <= rows; i += Width, target += steps * Width) {
      for (int w = 0; w < Width; ++w) target[w] = make_unit<P>(first[i + w], second[i + w]);
    }
    if (i < rows) {
      for (int w = 0; w < Width; ++w) target[w] = i + w < rows ? make_unit<P>(first[i + w], second[i + w]) : 0;
    }
  };
  const std::int64_t whole = k / P::kDepth;
  for (std::int64_t s = 0; s < whole; ++s) {
    const T* first = x + s * P::kDepth * k_stride;
    pack_step(s, first, first + (P::kDepth - 1) * k_stride);
  }
  if constexpr (P::kDepth == 2) {
    if (whole < steps) {
      const T* last = x + whole * 2 * k_stride;
      typename P::Unit* target = out + whole * Width;
      for (std::int64_t i = 0; i < rows; i += Width, target += steps * Width) {
        for (int w = 0; w < Width; ++w) target[w] = i + w < rows ? make_unit<P>(last[i + w], T(0.0f)) : 0;
      }
    }
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
