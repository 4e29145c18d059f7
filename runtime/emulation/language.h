#pragma once
// The part of the CUDA language that keel's kernels use, for a host compiler: the counterpart of cuda_runtime.h's
// device side. keel/runtime/cuda/launch.h chooses between the two.

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "keel/runtime/emulation/grid.h"
#include "keel/runtime/error.h"

// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier): the names are CUDA's
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

using dim3 = keel::emulation::Extent3;

#define threadIdx (::keel::emulation::here.thread)
#define blockIdx (::keel::emulation::here.block)
#define blockDim (::keel::emulation::here.block_extent)
#define gridDim (::keel::emulation::here.grid_extent)

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

namespace keel::emulation {

// What a shuffle hands over: each lane's value, and the lane that it wants to hear.
template <class T>
struct Shuffle {
  T value;
  unsigned source;
  T heard;
};

// Lanes hear of each other's values here, not of what they wrote to memory: that takes __syncwarp().
template <class T>
T shuffle(unsigned mask, T value, unsigned source, const std::source_location& where) {
  static_assert(std::is_trivially_copyable_v<T>);
  Shuffle<T> own{value, source, value};
  if (source < 32 && (mask >> source & 1) == 0) fail_thread("a shuffle reads a lane that is not in its mask", where);
  warp_collective(
      mask, &own,
      [](void* const records[32]) {
        for (int i = 0; i < 32; ++i) {
          if (records[i] == nullptr) continue;
          auto& record = *static_cast<Shuffle<T>*>(records[i]);
          if (record.source < 32) record.heard = static_cast<const Shuffle<T>*>(records[record.source])->value;
        }
      },
      where, false);
  return own.heard;
}

struct Vote {
  bool own;
  unsigned all;
};

inline unsigned ballot(unsigned mask, bool vote, const std::source_location& where) {
  Vote own{vote, 0};
  warp_collective(
      mask, &own,
      [](void* const records[32]) {
        unsigned all = 0;
        for (int i = 0; i < 32; ++i)
          if (records[i] != nullptr && static_cast<const Vote*>(records[i])->own) all |= 1u << i;
        for (int i = 0; i < 32; ++i)
          if (records[i] != nullptr) static_cast<Vote*>(records[i])->all = all;
      },
      where, false);
  return own.all;
}

// A GPU reads and writes a value at multiples of its size only.
template <class T>
void expect_aligned(const T* address, const std::source_location& where) {
  if (reinterpret_cast<std::uintptr_t>(address) % sizeof(T) != 0)
    fail_thread(concat("an access to ", sizeof(T), " bytes of memory at no multiple of that"), where);
}

}  // namespace keel::emulation

#define KEEL_HERE const std::source_location& where = std::source_location::current()

inline void __syncthreads(KEEL_HERE) { keel::emulation::block_barrier(where); }
inline void __syncwarp(unsigned mask = 0xffffffffu, KEEL_HERE) {
  keel::emulation::warp_collective(
      mask, nullptr, [](void* const*) {}, where, true);
}
inline void __threadfence() {}
inline void __threadfence_system() {}
inline void __threadfence_block() {}

// The lane that a shuffle of `width` lanes reads; outside the segment a lane hears itself.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, KEEL_HERE) {
  const unsigned segment = keel::emulation::lane() / static_cast<unsigned>(width) * static_cast<unsigned>(width);
  return keel::emulation::shuffle(mask, value, segment + static_cast<unsigned>(source) % static_cast<unsigned>(width),
                                  where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, KEEL_HERE) {
  const unsigned lane = keel::emulation::lane(), source = lane ^ static_cast<unsigned>(lane_mask);
  const unsigned end = (lane / static_cast<unsigned>(width) + 1) * static_cast<unsigned>(width);
  return keel::emulation::shuffle(mask, value, source < end ? source : lane, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, KEEL_HERE) {
  const unsigned lane = keel::emulation::lane();
  const unsigned end = (lane / static_cast<unsigned>(width) + 1) * static_cast<unsigned>(width);
  return keel::emulation::shuffle(mask, value, lane + delta < end ? lane + delta : lane, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, KEEL_HERE) {
  const unsigned lane = keel::emulation::lane(),
                 first = lane / static_cast<unsigned>(width) * static_cast<unsigned>(width);
  return keel::emulation::shuffle(mask, value, lane >= first + delta ? lane - delta : lane, where);
}
inline unsigned __ballot_sync(unsigned mask, int vote, KEEL_HERE) {
  return keel::emulation::ballot(mask, vote != 0, where);
}
inline int __any_sync(unsigned mask, int vote, KEEL_HERE) {
  return keel::emulation::ballot(mask, vote != 0, where) != 0;
}
inline int __all_sync(unsigned mask, int vote, KEEL_HERE) {
  return (keel::emulation::ballot(mask, vote != 0, where) & mask) == mask;
}

// Threads of a block run one at a time, but blocks of several devices may not: atomics are real ones.
template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_add(value);
}
template <class T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).exchange(value);
}
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  std::atomic_ref<T>(*address).compare_exchange_strong(expected, value);
  return expected;
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  std::atomic_ref<T> target(*address);
  T old = target.load();
  while (old < value && !target.compare_exchange_weak(old, value)) {}
  return old;
}

template <class T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  std::atomic_ref<T> target(*address);
  T old = target.load();
  while (value < old && !target.compare_exchange_weak(old, value)) {}
  return old;
}

// Cache hints: plain accesses here, to memory that may hold another type than the access.
template <class T>
T __ldcs(const T* address, KEEL_HERE) {
  keel::emulation::expect_aligned(address, where);
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}
template <class T>
T __ldg(const T* address, KEEL_HERE) {
  return __ldcs(address, where);
}
template <class T>
void __stcs(T* address, T value, KEEL_HERE) {
  keel::emulation::expect_aligned(address, where);
  std::memcpy(static_cast<void*>(address), &value, sizeof(T));
}

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)
