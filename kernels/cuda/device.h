#pragma once
// What the .cu files share: 16-byte accesses, conversions, and reductions of warp and block.

#include <bit>
#include <cstdint>
#include <type_traits>

#include "keel/kernels/cuda/stream.h"
#include "keel/kernels/table.h"
#include "keel/kernels/widen.h"
#include "keel/runtime/math.h"

namespace keel::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

KEEL_HD constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Blocks along the x of a grid, which CUDA counts in 31 bits.
inline unsigned grid_of(std::int64_t blocks) {
  if (blocks > INT32_MAX) throw Error(concat(blocks, " blocks are more than a grid has"), ErrorKind::unsupported);
  return static_cast<unsigned>(blocks);
}

[[noreturn]] inline void refuse_dtype(std::string_view op, DType dtype, Device device) {
  throw Error(concat(op, " in ", dtype, " is not implemented on ", device, "; it takes f32, bf16 and f16"),
              ErrorKind::unsupported);
}

// Calls f(TypeTag<T>{}) with the C++ type of f32, bf16 or f16: what arithmetic kernels take.
template <class F>
void visit_kernel_type(std::string_view op, DType dtype, Device device, F&& f) {
  switch (dtype) {
    case DType::f32: return f(TypeTag<float>{});
    case DType::bf16: return f(TypeTag<bf16>{});
    case DType::f16: return f(TypeTag<f16>{});
    default: refuse_dtype(op, dtype, device);
  }
}

// Calls f(TypeTag<Word>{}) with an unsigned word of that many bytes.
template <class F>
void visit_word(std::size_t bytes, F&& f) {
  switch (bytes) {
    case 1: return f(TypeTag<std::uint8_t>{});
    case 2: return f(TypeTag<std::uint16_t>{});
    case 4: return f(TypeTag<unsigned>{});
    case 8: return f(TypeTag<uint2>{});
    default: return f(TypeTag<uint4>{});
  }
}

// 16 bytes of a dense array, moved in one access. Addresses must be multiples of 16.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  T values[kSize];
};
template <class T>
__device__ Pack<T> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T>*>(from);
}
template <class T>
__device__ void store_pack(T* to, const Pack<T>& pack) {
  *reinterpret_cast<Pack<T>*>(to) = pack;
}
// The same for numbers that are not used again soon: they do not push others out of the cache.
template <class T>
__device__ Pack<T> load_pack_streaming(const T* from) {
  return std::bit_cast<Pack<T>>(__ldcs(reinterpret_cast<const uint4*>(from)));
}
template <class T>
__device__ void store_pack_streaming(T* to, const Pack<T>& pack) {
  __stcs(reinterpret_cast<uint4*>(to), std::bit_cast<uint4>(pack));
}
// Whether every row of a dense (rows, cols) array begins at a multiple of 16 bytes.
template <class T>
bool packs_fit(const T* data, std::int64_t cols) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && cols % Pack<T>::kSize == 0;
}

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Largest {  // NaN wins
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};

// What the lane at this distance holds. Structures have their own, beside their type.
template <class T>
__device__ T exchange(T value, int distance) {
  return __shfl_xor_sync(kAllLanes, value, distance);
}

// The reduction of a value over the 32 lanes of a warp, in every lane: by a butterfly, so each lane has the same bits.
template <class T, class Op>
__device__ T reduce_warp(T value, Op op) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) value = op(value, exchange(value, distance));
  return value;
}

// The sum of the values of the warp's lanes up to this one.
template <class T>
__device__ T sum_up_to_lane(T value) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const T before = __shfl_up_sync(kAllLanes, value, static_cast<unsigned>(distance));
    if (lane >= distance) value += before;
  }
  return value;
}

// The same over a block of whole warps. `scratch` is that of reduce_block.
template <class T, class Scratch>
__device__ T sum_up_to_thread(T value, const Scratch& scratch) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  value = sum_up_to_lane(value);
  if (lane == kWarp - 1) scratch[warp] = value;
  __syncthreads();
  const T up_to = sum_up_to_lane(lane < warps ? static_cast<T>(scratch[lane]) : T{});
  const T before = __shfl_sync(kAllLanes, up_to, warp == 0 ? 0 : static_cast<int>(warp - 1));
  __syncthreads();  // scratch is free again
  return warp == 0 ? value : before + value;
}

// The reduction over a block of whole warps (up to 1024 threads), in every thread. `scratch` has room for 32 and may
// be used again after the call.
template <class T, class Op, class Scratch>
__device__ T reduce_block(T value, T neutral, Op op, const Scratch& scratch) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  value = reduce_warp(value, op);
  if (warps == 1) return value;
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  T total = lane < warps ? static_cast<T>(scratch[lane]) : neutral;
  total = reduce_warp(total, op);
  __syncthreads();  // scratch is free again
  return total;
}

// Notes bad data; the first note wins.
__device__ inline void raise_fault(Fault* fault, FaultKind kind, std::int64_t position, std::int64_t value,
                                   std::int64_t limit) {
  if (atomicCAS(&fault->raised, Fault::kNone, Fault::kBegun) != Fault::kNone) return;
  fault->kind = kind;
  fault->position = position;
  fault->value = value;
  fault->limit = limit;
  __threadfence_system();  // the host may look while other work runs
  atomicExch(&fault->raised, Fault::kWhole);
}

}  // namespace keel::cuda
