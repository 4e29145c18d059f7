#pragma once
// keel's own matrix product on raw pointers: blocked, packed, fp32 sums (fp64 for f64).
//
// Two ways in: gemm() multiplies on all threads of a context; pack_right() and multiply_packed()
// multiply in the calling thread with an operand that was packed once for many products.

#include <cstdint>

#include "keel/kernels/cpu/microkernel.h"
#include "keel/kernels/matmul.h"
#include "keel/runtime/dtype.h"

namespace keel::cpu {

// Element (i, j) lies at data[i * row + j * col]. Strides of 1 are the fast layouts; any work.
template <class T>
struct MatrixView {
  const T* data;
  std::int64_t row;
  std::int64_t col;
  MatrixView transposed() const { return {data, col, row}; }
  MatrixView at(std::int64_t i, std::int64_t j) const { return {data + i * row + j * col, row, col}; }
};

// Multiply-adds that are worth a task of their own (20 to 60 microseconds).
inline constexpr std::int64_t kTaskProducts = 1 << 22;

// c = epilogue(alpha a b), or c += alpha a b. Out is T or its sum type.
template <class T, class Out>
struct GemmArgs {
  std::int64_t m, n, k;
  MatrixView<T> a;  // (m, k)
  MatrixView<T> b;  // (k, n)
  Out* c;           // (m, n), rows dense
  std::int64_t ldc;
  Accumulator<T> alpha = 1;
  bool accumulate = false;
  Epilogue epilogue = Epilogue::none;
  const T* bias = nullptr;        // (n)
  Out* pre_activation = nullptr;  // (m, n), rows dense
  std::int64_t ld_pre_activation = 0;
};

// Splits the output over threads, never k: the same bits at any thread count. Inside a parallel_for it
// runs in the calling thread. Workspace comes from the context's allocator.
template <class T, class Out>
void gemm(const Context& context, const GemmArgs<T, Out>& args);

template <class T>
using UnitOf = typename Product<T>::Unit;

// A right operand (k, n) in panels of columns, made for products of T.
template <class T>
struct PackedRight {
  UnitOf<T>* units;  // packed_right_units(k, n) of them
  std::int64_t k, n;
};
template <class T>
std::int64_t packed_right_units(std::int64_t k, std::int64_t n);
// Units of workspace that multiply_packed needs for `m` rows and `k` columns of its left operand.
template <class T>
std::int64_t left_workspace_units(std::int64_t m, std::int64_t k);

// Source is T or its sum type; sums are rounded to T on the way where T is multiplied as bf16 pairs.
template <class T, class Source>
void pack_right(MatrixView<Source> b, const PackedRight<T>& packed);

// Where a product begins in its packed operand: a row at a multiple of 2, a column at one of packed_columns<T>().
struct PackedOrigin {
  std::int64_t row = 0, column = 0;
};
template <class T>
constexpr std::int64_t packed_columns() {
  return kTileColumns<Product<T>>;
}

// c = alpha a b, or c += alpha a b, in the calling thread, with k rows and n columns of b from `origin` on.
// a: (m, k); origin.row + k <= b.k, origin.column + n <= b.n; c: (m, n) with row stride ldc.
template <class T, class Source>
void multiply_packed(std::int64_t m, std::int64_t n, std::int64_t k, Accumulator<T> alpha, MatrixView<Source> a,
                     const PackedRight<T>& b, bool accumulate, Accumulator<T>* c, std::int64_t ldc,
                     UnitOf<T>* workspace, PackedOrigin origin = {});

}  // namespace keel::cpu
