#pragma once
// How elementwise CPU kernels see their operands: as a sequence of short dense blocks of one type.
//
// A kernel works on blocks of at most block_length<C>() elements of the compute type C (float, double or
// std::int64_t) that stay in the first cache. An operand that is dense and of type C is read and written
// in place; every other dtype and layout (narrow floats, transposed, broadcast) passes through a buffer.
// So an operation is compiled once for each compute type, whatever dtypes and layouts it meets.

#include <array>
#include <cstdint>

#include "keel/kernels/layout.h"
#include "keel/kernels/widen.h"
#include "keel/runtime/parallel.h"
#include "keel/runtime/tensor.h"

namespace keel::cpu {

// Elements of a block: 4 KiB, so that an operation's blocks fit in the first cache together.
template <class C>
constexpr int block_length() {
  return static_cast<int>(4096 / sizeof(C));
}

// Walks the rows (runs along the last dimension) that a range of elements in row-major order covers.
class RowCursor {
 public:
  RowCursor(const Layout& layout, std::int64_t begin);
  std::int64_t offset() const { return offset_; }                       // of the current element
  std::int64_t left() const { return layout_.shape.back() - column_; }  // elements of this row from here on
  // Steps over `count` <= left() elements.
  void advance(std::int64_t count);

 private:
  const Layout& layout_;
  Dims index_;  // of the row; its last entry is unused
  std::int64_t column_ = 0;
  std::int64_t offset_ = 0;
};

// Elements [begin, begin + n) of an operand as C: where they lie already, or converted into `buffer`.
template <class C>
class Reader {
 public:
  explicit Reader(const Tensor& x);
  const C* operator()(std::int64_t begin, int n, C* buffer) const { return load_(data_, layout_, begin, n, buffer); }

  using Load = const C* (*)(const std::byte* data, const Layout&, std::int64_t begin, int n, C* buffer);

 private:
  const std::byte* data_;
  Layout layout_;
  Load load_;
};

// Where a block's results go: target() is the place itself or `buffer`; store() then delivers the latter.
template <class C>
class Writer {
 public:
  explicit Writer(const Tensor& out);
  C* target(std::int64_t begin, C* buffer) const { return in_place_ ? reinterpret_cast<C*>(data_) + begin : buffer; }
  void store(std::int64_t begin, int n, const C* values) const {
    if (!in_place_ || values != reinterpret_cast<C*>(data_) + begin) store_(data_, layout_, begin, n, values);
  }

  using Store = void (*)(std::byte* data, const Layout&, std::int64_t begin, int n, const C* values);

 private:
  std::byte* data_;
  Layout layout_;
  bool in_place_;  // dense and of type C
  Store store_;
};

// The loop of one operation over one block. `parameter` is the functor's number.
template <class C>
using BlockFunction = void (*)(C* out, const C* const* in, int n, double parameter);

// out = f(in...), block by block; the inputs have out's shape (strides of 0 where they repeat) and may be out.
template <class C, std::size_t N>
void run_blocks(const Tensor& out, const std::array<Tensor, N>& in, BlockFunction<C> f, double parameter) {
  if (out.numel() == 0) return;
  const Writer<C> writer(out);
  const auto readers = [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<Reader<C>, N>{Reader<C>(in[I])...};
  }
  (std::make_index_sequence<N>{});
  parallel_for(out.context(), out.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    constexpr int kLength = block_length<C>();
    alignas(64) C buffers[N + 1][kLength];
    std::array<const C*, N + 1> blocks;
    for (std::int64_t at = begin; at < end; at += kLength) {
      const int n = static_cast<int>(end - at < kLength ? end - at : kLength);
      for (std::size_t i = 0; i < N; ++i) blocks[i] = readers[i](at, n, buffers[i]);
      C* target = writer.target(at, buffers[N]);
      f(target, blocks.data(), n, parameter);
      writer.store(at, n, target);
    }
  });
}

}  // namespace keel::cpu
