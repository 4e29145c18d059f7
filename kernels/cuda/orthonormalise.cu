// What PowerSGD asks of its narrow matrices: orthonormal columns, and rows that are not empty.

#include "keel/kernels/codec_formulas.h"
#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/device.h"

namespace keel::cuda {
namespace {

// The threads of a block that walks along `count` numbers.
unsigned threads_for(std::int64_t count) {
  return static_cast<unsigned>(std::min<std::int64_t>(1024, ceil_div(count, kWarp) * kWarp));
}

struct Columns {
  float* x;  // (rows, columns)
  std::int64_t rows, columns;
  double* wide;     // (columns, rows): what is left of each column
  double* lengths;  // (columns), before anything was taken from them

  __device__ double* column(std::int64_t c) const { return wide + c * rows; }

  // The product of two columns, in every thread of the block.
  template <class Scratch>
  __device__ double dot(std::int64_t a, std::int64_t b, const Scratch& scratch) const {
    double sum = 0;
    for (std::int64_t r = threadIdx.x; r < rows; r += blockDim.x) sum += column(a)[r] * column(b)[r];
    return reduce_block(sum, 0.0, Sum{}, scratch);
  }
  template <class Scratch>
  __device__ void normalise(std::int64_t c, double before, const Scratch& scratch) const {
    const double factor = codec::normalising_factor(std::sqrt(dot(c, c, scratch)), before);
    for (std::int64_t r = threadIdx.x; r < rows; r += blockDim.x)
      x[r * columns + c] = static_cast<float>(column(c)[r] *= factor);
  }
};

// A block for each column; the first one is made of length one.
__global__ void widen_columns_kernel(Columns m) {
  KEEL_SHARED(double, scratch, kWarp);
  const std::int64_t c = blockIdx.x;
  for (std::int64_t r = threadIdx.x; r < m.rows; r += blockDim.x)
    m.column(c)[r] = static_cast<double>(m.x[r * m.columns + c]);
  const double length = std::sqrt(m.dot(c, c, scratch));
  if (threadIdx.x == 0) m.lengths[c] = length;
  if (c == 0) m.normalise(c, length, scratch);
}

// A block for each column behind `done`, from which it takes what lies along that; the next one is made of length one.
__global__ void take_from_columns_kernel(Columns m, std::int64_t done) {
  KEEL_SHARED(double, scratch, kWarp);
  const std::int64_t c = done + 1 + blockIdx.x;
  const double along = m.dot(c, done, scratch);
  for (std::int64_t r = threadIdx.x; r < m.rows; r += blockDim.x) m.column(c)[r] -= along * m.column(done)[r];
  if (c == done + 1) m.normalise(c, m.lengths[c], scratch);
}

void orthonormalise(const Tensor& x) {
  if (x.numel() == 0) return;
  const Tensor wide = empty(x.context(), {x.dim(1), x.dim(0)}, DType::f64, Purpose::workspace);
  const Tensor lengths = empty(x.context(), {x.dim(1)}, DType::f64, Purpose::workspace);
  const Columns columns{x.data<float>(), x.dim(0), x.dim(1), wide.data<double>(), lengths.data<double>()};
  const cudaStream_t stream = stream_of(x);
  const unsigned threads = threads_for(columns.rows);
  launch("orthonormalise", widen_columns_kernel, {grid_of(columns.columns), threads}, stream, columns);
  for (std::int64_t done = 0; done + 1 < columns.columns; ++done)
    launch("orthonormalise: take", take_from_columns_kernel, {grid_of(columns.columns - done - 1), threads}, stream,
           columns, done);
}

// A block for each row.
__global__ void fill_empty_rows_kernel(float* x, std::int64_t columns, PhiloxKey key) {
  KEEL_SHARED(int, scratch, kWarp);
  const std::int64_t first = blockIdx.x * columns;
  int filled = 0;
  for (std::int64_t c = threadIdx.x; c < columns; c += blockDim.x) filled |= x[first + c] != 0 ? 1 : 0;
  if (reduce_block(filled, 0, Sum{}, scratch) != 0) return;
  for (std::int64_t c = threadIdx.x; c < columns; c += blockDim.x) x[first + c] = codec::normal_at(key, first + c);
}

void fill_empty_rows(const Tensor& x, PhiloxKey key) {
  if (x.numel() == 0) return;
  launch("fill_empty_rows", fill_empty_rows_kernel, {grid_of(x.dim(0)), threads_for(x.dim(1))}, stream_of(x),
         x.data<float>(), x.dim(1), key);
}

}  // namespace

void add_orthonormalise(KernelTable& table) {
  table.orthonormalise = orthonormalise;
  table.fill_empty_rows = fill_empty_rows;
}

}  // namespace keel::cuda
