#pragma once
// How the CUDA row kernels walk over rows of dense (rows, cols) arrays: 16 bytes at a time.
//
// Rows that consist of whole packs and fit are held in the registers of a warp or a block. Other rows, of any length
// and alignment, are walked over in every pass: most of a row as packs, the elements before the first 16-byte boundary
// and after the last one by one. A thread handles the same elements in every pass, so that no barrier is needed between
// a row's last reading and its overwriting.

#include <algorithm>
#include <initializer_list>

#include "keel/kernels/cuda/device.h"

namespace keel::cuda {

// A pack in registers as it lies in memory. Rows are loaded as such and opened where the elements are used: otherwise
// the compiler takes each pack apart, and waits for it, before it loads the next.
template <class T>
struct alignas(16) ClosedPack {
  static constexpr int kSize = Pack<T>::kSize;
  std::uint32_t words[4];

  __device__ void open(float (&values)[kSize]) const {
    if constexpr (std::is_same_v<T, bf16>) {
      for (int i = 0; i < kSize; i += 2) {
        values[i] = std::bit_cast<float>(words[i / 2] << 16);
        values[i + 1] = std::bit_cast<float>(words[i / 2] & 0xffff0000u);
      }
    } else {
      const auto pack = std::bit_cast<Pack<T>>(*this);
      for (int i = 0; i < kSize; ++i) values[i] = widen(pack.values[i]);
    }
  }
  __device__ static ClosedPack close(const float (&values)[kSize]) {
    ClosedPack pack;
    if constexpr (sizeof(T) == 2) {
      for (int i = 0; i < kSize; i += 2) pack.words[i / 2] = round_two(values[i], values[i + 1]);
    } else {
      for (int i = 0; i < kSize; ++i) pack.words[i] = std::bit_cast<std::uint32_t>(values[i]);
    }
    return pack;
  }

 private:
  // Two neighbours, which a GPU rounds with one instruction.
  __device__ static std::uint32_t round_two(float low, float high) {
    std::uint32_t word;
#ifdef __CUDA_ARCH__
    if constexpr (std::is_same_v<T, bf16>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#else
    word = static_cast<std::uint32_t>(narrow<T>(high).bits) << 16 | narrow<T>(low).bits;
#endif
    return word;
  }
};

enum class Cache : unsigned char { keep, stream };

template <Cache cache = Cache::keep, class T>
__device__ ClosedPack<T> load_closed(const T* from) {
  return std::bit_cast<ClosedPack<T>>(cache == Cache::stream ? load_pack_streaming(from) : load_pack(from));
}

// N neighbours as floats: a pack, or one element. A pack that is not aligned is loaded element by element.
template <int N, class T>
__device__ void load_values(const T* from, float (&values)[N], bool aligned = true) {
  if constexpr (N == Pack<T>::kSize) {
    if (aligned) return load_closed(from).open(values);
  }
  for (int i = 0; i < N; ++i) values[i] = widen(from[i]);
}
template <Cache cache = Cache::keep, int N, class T>
__device__ void store_values(T* to, const float (&values)[N]) {
  if constexpr (N == Pack<T>::kSize) {
    const auto pack = std::bit_cast<Pack<T>>(ClosedPack<T>::close(values));
    if constexpr (cache == Cache::stream) store_pack_streaming(to, pack);
    else store_pack(to, pack);
  } else {
    for (int i = 0; i < N; ++i) to[i] = narrow<T>(values[i]);
  }
}

template <int N>
using Count = std::integral_constant<int, N>;

// A row that is held: each thread along x of the block has packs threadIdx.x, threadIdx.x + blockDim.x and so on, at
// most kSlots of them.
template <class T, int slots>
struct HeldRow {
  static constexpr int kSlots = slots, kSize = Pack<T>::kSize;
  int packs;

  __device__ HeldRow(const T*, std::int64_t cols, bool) : packs(static_cast<int>(cols) / kSize) {}

  // f(slot, begin, Count<kSize>{}) for elements [begin, begin + kSize) of the row. The loop is unrolled, so that `slot`
  // may number registers.
  template <class F>
  __device__ void each(const F& f) const {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const int pack = static_cast<int>(threadIdx.x + slot * blockDim.x);
      if (pack < packs) f(slot, std::int64_t{pack} * kSize, Count<kSize>{});
    }
  }
};

// Any row. `vector`: it has 16-byte boundaries where the other arrays of the kernel have them.
template <class T>
struct AnyRow {
  static constexpr int kSlots = 1, kSize = Pack<T>::kSize;
  std::int64_t head, packs, singles;

  __device__ AnyRow(const T* row, std::int64_t cols, bool vector) {
    constexpr int kBytes = static_cast<int>(sizeof(T));
    const auto before = static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(row) % 16 / kBytes);
    head = vector && before < cols ? before : cols;
    packs = (cols - head) / kSize;
    singles = cols - packs * kSize;
  }
  __device__ std::int64_t begin_of(std::int64_t pack) const { return head + pack * kSize; }

  // f(0, begin, Count<N>{}) for elements [begin, begin + N) of the row, where N is 1 or kSize.
  template <class F>
  __device__ void each(const F& f) const {
    for (std::int64_t pack = threadIdx.x; pack < packs; pack += blockDim.x) f(0, begin_of(pack), Count<kSize>{});
    each_single(f);
  }
  template <class F>
  __device__ void each_single(const F& f) const {
    for (std::int64_t i = threadIdx.x; i < singles; i += blockDim.x) f(0, i < head ? i : i + packs * kSize, Count<1>{});
  }
};

// Whether the tensors (those that are defined) lie alike relative to 16-byte boundaries, so that packs of one are packs
// of all.
inline bool in_phase(std::initializer_list<const Tensor*> tensors) {
  std::uintptr_t phase = 16;
  for (const Tensor* tensor : tensors) {
    if (!tensor->defined()) continue;
    const std::uintptr_t own = reinterpret_cast<std::uintptr_t>(tensor->raw()) % 16;
    if (phase != 16 && own != phase) return false;
    phase = own;
  }
  return true;
}

// A row of at most this many elements a thread is held.
inline constexpr int kHeldElements = 32;
template <class T>
using Held = HeldRow<T, kHeldElements / Pack<T>::kSize>;
inline constexpr int kRowThreads = 512;  // that share a row, at most

// A warp, or a block of whole warps, for each row; several of the former share a block.
struct RowLaunch {
  dim3 grid, block;
};
inline RowLaunch launch_of_rows(std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kRowsOfWarps = 8, kMostWarps = kRowThreads / kWarp;
  const std::int64_t warps = std::clamp<std::int64_t>(ceil_div(cols, kHeldElements * kWarp), 1, kMostWarps);
  const std::int64_t together = warps == 1 ? std::min(kRowsOfWarps, rows) : 1;
  return {dim3(grid_of(ceil_div(rows, together))),
          dim3(static_cast<unsigned>(warps * kWarp), static_cast<unsigned>(together))};
}
// `data`: one of arrays in phase.
template <class T>
bool can_hold(const T* data, std::int64_t cols, bool vector) {
  return vector && packs_fit(data, cols) && cols <= kHeldElements * kRowThreads;
}

// The row of a warp or block launched so.
__device__ inline std::int64_t row_of_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
}

}  // namespace keel::cuda
