#include "keel/kernels/cuda/device.h"
#include "keel/runtime/cuda/tensor_core.h"
#include "tests/cuda/tensor_core_kernels.h"

namespace keel::testing {
namespace {

using namespace keel::cuda;

template <class T>
__device__ unsigned pair_of(T low, T high) {
  return low.bits | static_cast<unsigned>(high.bits) << 16;
}

// Every register filled by hand.
template <class T>
__global__ void multiply_tiles_kernel(const T* a, const T* b, float* sum) {
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  unsigned left[4], right[2];
  for (int r = 0; r < 4; ++r) {
    const T* from = a + (g + 8 * (r % 2)) * 16 + 2 * t + 8 * (r / 2);
    left[r] = pair_of(from[0], from[1]);
  }
  for (int r = 0; r < 2; ++r) {
    const T* from = b + (2 * t + 8 * r) * 8 + g;
    right[r] = pair_of(from[0], from[8]);
  }
  float own[4];
  for (int i = 0; i < 4; ++i) own[i] = sum[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2];
  multiply_add<T>(own, left, right[0], right[1]);
  for (int i = 0; i < 4; ++i) sum[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = own[i];
}

template <int N>
__global__ void load_tiles_kernel(const std::uint16_t* matrices, bool transposed, std::int32_t* out) {
  constexpr int kPitch = 24;  // elements from one row to the next
  KEEL_SHARED(uint4, rows, 32 * kPitch / 8);
  auto* elements = reinterpret_cast<std::uint16_t*>(rows.data());
  const int lane = static_cast<int>(threadIdx.x);
  if (lane < 8 * N)
    for (int j = 0; j < 8; ++j) elements[(31 - lane) * kPitch + j] = matrices[lane * 8 + j];
  __syncwarp();
  unsigned own[N];
  const SharedAddress row = shared_address(elements + (31 - lane) * kPitch);
  if (transposed) load_matrices_transposed(own, row);
  else load_matrices(own, row);
  for (int i = 0; i < N; ++i) out[lane * N + i] = static_cast<std::int32_t>(own[i]);
}

// Tiles of 16 rows and 16 columns of k, two stages of them for each operand.
template <class T>
__global__ void multiply_strips_kernel(const T* a, const T* b, int m, int n, int k, int row_a, int row_b, float* out) {
  constexpr int kTile = 16 * 16;
  KEEL_SHARED(uint4, memory, 4 * kTile / 8);
  T* tiles = reinterpret_cast<T*>(memory.data());
  const int lane = static_cast<int>(threadIdx.x), row = lane / 2, column = lane % 2 * 8;
  const auto fetch = [&](int step) {
    T* stage = tiles + step % 2 * 2 * kTile;
    const int left = (k - 16 * step - column) * 2;
    const int bytes = left < 0 ? 0 : left > 16 ? 16 : left;
    if (16 * step < k) {
      const auto copy = [&](const T* from, int rows, int pitch, T* to) {
        const bool inside = row < rows && bytes > 0;
        copy_async(shared_address(to + row * 16 + column), inside ? from + row * pitch + 16 * step + column : from,
                   inside ? bytes : 0);
      };
      copy(a, m, row_a, stage);
      copy(b, n, row_b, stage + kTile);
    }
    commit_copies();
  };
  float sums[2][4] = {};
  fetch(0);
  for (int step = 0; 16 * step < k; ++step) {
    fetch(step + 1);
    wait_copies<1>();
    __syncwarp();
    const T* stage = tiles + step % 2 * 2 * kTile;
    unsigned left[4], right[4];
    load_matrices(left, shared_address(stage + lane % 16 * 16 + lane / 16 * 8));
    load_matrices(right, shared_address(stage + kTile + (lane % 8 + lane / 16 * 8) * 16 + lane / 8 % 2 * 8));
    for (int j = 0; j < 2; ++j) multiply_add<T>(sums[j], left, right[2 * j], right[2 * j + 1]);
    __syncwarp();
  }
  for (int j = 0; j < 2; ++j)
    for (int i = 0; i < 4; ++i) {
      const int y = lane / 4 + 8 * (i / 2), x = 8 * j + lane % 4 * 2 + i % 2;
      if (y < m && x < n) out[y * n + x] = sums[j][i];
    }
}

template <class F>
void visit_half(DType dtype, F&& f) {
  if (dtype == DType::bf16) f(TypeTag<bf16>{});
  else f(TypeTag<f16>{});
}

}  // namespace

void multiply_tiles(const Tensor& a, const Tensor& b, const Tensor& sum) {
  visit_half(a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch("multiply_tiles", multiply_tiles_kernel<T>, {1, 32}, stream_of(a), a.data<T>(), b.data<T>(),
           sum.data<float>());
  });
}

void load_tiles(const Tensor& matrices, bool transposed, const Tensor& out) {
  const auto* from = reinterpret_cast<const std::uint16_t*>(matrices.raw());
  const auto run = [&](auto kernel) {
    launch("load_tiles", kernel, {1, 32}, stream_of(out), from, transposed, out.data<std::int32_t>());
  };
  if (matrices.dim(0) == 1) run(load_tiles_kernel<1>);
  else if (matrices.dim(0) == 2) run(load_tiles_kernel<2>);
  else run(load_tiles_kernel<4>);
}

void multiply_strips(const Tensor& a, const Tensor& b, std::int64_t k, const Tensor& out) {
  visit_half(a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch("multiply_strips", multiply_strips_kernel<T>, {1, 32}, stream_of(a), a.data<T>(), b.data<T>(), a.dim(0),
           b.dim(0), k, a.stride(0), b.stride(0), out.data<float>());
  });
}

}  // namespace keel::testing
