#pragma once
// The product of one block of k, tile by tile: what a thread does between packing and rounding.

#include <algorithm>

#include "keel/kernels/cpu/gemm.h"
#include "keel/kernels/cpu/microkernel.h"
#include "keel/runtime/parallel.h"

// Blocking, after Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", 2008):
// k is cut into blocks whose A panel stays in the first-level cache while the panels of a block of B
// stream past it from the second level.
namespace keel::cpu {

inline constexpr std::int64_t kUnpackedColumns = 768;  // of B, up to which A is not packed where it need not be

template <class P>
inline constexpr std::int64_t kBlockColumns = kTile.block_columns(sizeof(typename P::Sum));

inline std::int64_t divide_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }
inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return divide_up(value, multiple) * multiple;
}

// Steps of each k block but the last, all nearly equal.
inline std::int64_t block_steps(std::int64_t steps) {
  return std::max<std::int64_t>(1, divide_up(steps, divide_up(std::max<std::int64_t>(steps, 1), kBlockSteps)));
}

template <class P>
std::int64_t steps_of(std::int64_t k) {
  return divide_up(k, P::kDepth);
}

// Called with finished sums: tile (rows, columns) of C whose first element is (i, j).
template <class Sum>
using Finish = FunctionRef<void(const Sum* tile, std::int64_t ld, std::int64_t i, std::int64_t j, std::int64_t rows,
                                std::int64_t columns)>;

// The left operand of a block: panels (steps, kTileRows) one after the other, or rows as they lie in memory.
template <class P>
struct Left {
  const typename P::Unit* units;
  std::int64_t row = 0;  // units from one row to the next; 0 for panels

  bool packed() const { return row == 0; }
  const typename P::Unit* at(std::int64_t i, std::int64_t steps) const {
    return units + (packed() ? i / kTileRows * kTileRows * steps : i * row);
  }
};

// Whether the micro-kernel can read (m, k) of `a` where it lies: whole units, dense along k. Packing
// costs about n / 10 of the product, so it is left out where n is small; not where rows lie a multiple
// of 4 KiB apart, since they would then share eight lines of the first-level cache.
template <class P, class T>
bool readable_in_place(const MatrixView<T>& a, std::int64_t m, std::int64_t n, std::int64_t k) {
  if constexpr (sizeof(T) * P::kDepth != sizeof(typename P::Unit)) return false;
  constexpr std::int64_t size = sizeof(T);
  const bool units = a.col == 1 && k % P::kDepth == 0 && a.row % P::kDepth == 0 && a.row != 0 &&
                     reinterpret_cast<std::uintptr_t>(a.data) % sizeof(typename P::Unit) == 0;
  return units && (m <= kTileRows || (n <= kUnpackedColumns && a.row * size % 4096 != 0));
}

template <class P, class T>
Left<P> left_in_place(const MatrixView<T>& a) {
  return {reinterpret_cast<const typename P::Unit*>(a.data), a.row / P::kDepth};
}

// Source of the block that will be packed next: fetched into the second-level cache a few lines at a
// time while the current block is multiplied, since packing by itself would wait for memory.
class Ahead {
 public:
  Ahead() = default;
  template <class T>
  Ahead(const MatrixView<T>& x, std::int64_t rows, std::int64_t columns)
      : next_(reinterpret_cast<const char*>(x.data)),
        stride_((x.col == 1 ? x.row : x.col) * static_cast<std::int64_t>(sizeof(T))),
        row_bytes_((x.col == 1 ? columns : rows) * static_cast<std::int64_t>(sizeof(T))),
        rows_left_(x.col == 1 ? rows : columns) {}

  std::int64_t lines() const { return rows_left_ * ((row_bytes_ + kLine - 1) / kLine); }
  void fetch(std::int64_t lines) {
    for (; lines > 0 && rows_left_ > 0; --lines) {
      __builtin_prefetch(next_ + at_, 0, 2);
      at_ += kLine;
      if (at_ < row_bytes_) continue;
      at_ = 0;
      next_ += stride_;
      --rows_left_;
    }
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const char* next_ = nullptr;
  std::int64_t stride_ = 0, row_bytes_ = 0, rows_left_ = 0, at_ = 0;
};

// The product of one k block of packed panels, added to (or written over) c; or handed to `finish`
// tile by tile, in which case c may be null when there is nothing to add to.
template <class P>
struct BlockProduct {
  using Unit = typename P::Unit;
  using Sum = typename P::Sum;
  static constexpr std::int64_t kColumns = kTileColumns<P>;

  std::int64_t m, n, steps;
  Left<P> a;
  const Unit* b;          // panels (steps, kColumns)
  std::int64_t b_stride;  // units from one panel to the next
  Sum alpha;
  bool add;
  Sum* c;
  std::int64_t ldc;
  const Finish<Sum>* finish = nullptr;
  bf16* rounded = nullptr;  // with PairProduct: whole finished tiles are rounded to here instead
  std::int64_t ld_rounded = 0;
  Ahead ahead = {};

  void run() {
    if (m <= 0 || n <= 0) return;
    const std::int64_t tiles = divide_up(m, kTileRows) * divide_up(n, kColumns);
    const std::int64_t lines = divide_up(ahead.lines(), tiles);
    for (std::int64_t block = 0; block < n; block += kBlockColumns<P>) {
      const std::int64_t block_end = std::min(n, block + kBlockColumns<P>);
      for (std::int64_t i = 0; i < m; i += kTileRows) {
        for (std::int64_t j = block; j < block_end; j += kColumns) {
          ahead.fetch(lines);
          tile(i, j);
        }
      }
    }
  }

 private:
  void tile(std::int64_t i, std::int64_t j) const {
    const std::int64_t rows = std::min<std::int64_t>(kTileRows, m - i);
    const std::int64_t columns = std::min(kColumns, n - j);
    const std::int64_t vectors = divide_up(columns, kLanes<Sum>);
    const TileKernel<P, Sum> kernel = tile_kernel<P, Sum>(a.packed(), rows, vectors);
    const Unit* left = a.at(i, steps);
    const Unit* right = b + j / kColumns * b_stride;
    if constexpr (P::kDepth == 2) {
      if (rounded != nullptr && rows == kTileRows && columns == kColumns) {
        tile_kernel<P, bf16>(a.packed(), rows, vectors)(steps, left, a.row, right, alpha, false,
                                                        rounded + i * ld_rounded + j, ld_rounded);
        return;
      }
    }
    const bool whole_vectors = columns == vectors * kLanes<Sum>;
    if (c != nullptr && whole_vectors) {
      Sum* target = c + i * ldc + j;
      kernel(steps, left, a.row, right, alpha, add, target, ldc);
      if (finish != nullptr) (*finish)(target, ldc, i, j, rows, columns);
      return;
    }
    alignas(kVectorBytes) Sum buffer[kTileRows * kColumns];
    kernel(steps, left, a.row, right, alpha, false, buffer, kColumns);
    if (c != nullptr) {
      for (std::int64_t r = 0; r < rows; ++r) {
        Sum* target = c + (i + r) * ldc + j;
        const Sum* row = buffer + r * kColumns;
        for (std::int64_t q = 0; q < columns; ++q) target[q] = add ? target[q] + row[q] : row[q];
      }
      if (finish != nullptr) (*finish)(c + i * ldc + j, ldc, i, j, rows, columns);
    } else {
      (*finish)(buffer, kColumns, i, j, rows, columns);
    }
  }
};

}  // namespace keel::cpu
