#pragma once
// What softmax and cross-entropy share: the exponential, and a row's maximum and sum of exponentials in one reading.

#include "keel/kernels/cuda/rows.h"
#include "keel/runtime/cuda/fast_math.h"

namespace keel::cuda {

// e^x for x <= 0, with results below 2^-125 flushed to 0. Where rows are of 16-bit numbers, a polynomial would take
// more time than their bytes do.
template <class T>
__device__ float exp_below(float x) {
  if constexpr (std::is_same_v<T, float>) return math::exp_flushed(x);
  else return fast_exp2(x * math::detail::kLog2E);
}

// A row that a block reads twice: the second time from shared memory where it fits.
template <class T>
class StagedRow {
 public:
  static constexpr int kSize = Pack<T>::kSize;
  static constexpr int kBatch = 4;  // packs that a thread has on the way at once
  // With so much shared memory for each, two blocks still fit on an SM of sm_90.
  static constexpr std::size_t kMostBytes = std::size_t{112} << 10;
  static constexpr std::size_t kScratchBytes = kWarp * sizeof(float);  // of the kernel's reductions

  // The shared memory that a block asks for to keep its row there, on the current device; 0 for a row that is too long.
  static std::size_t bytes(std::int64_t cols) {
    const auto bytes = static_cast<std::size_t>(cols / kSize) * 16;
    return bytes <= std::min(kMostBytes, shared_memory_limit() - kScratchBytes) ? bytes : 0;
  }
  static unsigned threads(std::int64_t cols) {
    const std::int64_t warps = ceil_div(cols, kBatch * kSize * kWarp);
    return static_cast<unsigned>(std::clamp<std::int64_t>(warps * kWarp, kWarp, kRowThreads));
  }

  __device__ StagedRow(const T* row, std::int64_t cols, bool vector, bool staged)
      : row_(row), parts_(row, cols, vector), stage_(staged ? dynamic_span<ClosedPack<T>>().data() : nullptr) {}

  // f(begin, values) for elements [begin, begin + N) of the row, as an array of N floats.
  template <class F>
  __device__ void first(const F& f) const {
    walk([&](std::int64_t pack) { return load_closed<Cache::stream>(row_ + parts_.begin_of(pack)); },
         [&](std::int64_t pack, const ClosedPack<T>& closed) {
           if (stage_ != nullptr) stage_[pack] = closed;  // read by this thread alone
         },
         f);
  }
  template <class F>
  __device__ void again(const F& f) const {
    walk(
        [&](std::int64_t pack) { return stage_ != nullptr ? stage_[pack] : load_closed(row_ + parts_.begin_of(pack)); },
        [](std::int64_t, const ClosedPack<T>&) {}, f);
  }

 private:
  template <class Load, class See, class F>
  __device__ void walk(const Load& load, const See& see, const F& f) const {
    const std::int64_t stride = blockDim.x;
    for (std::int64_t begin = threadIdx.x; begin < parts_.packs; begin += kBatch * stride) {
      ClosedPack<T> batch[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (begin + i * stride < parts_.packs) batch[i] = load(begin + i * stride);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const std::int64_t pack = begin + i * stride;
        if (pack >= parts_.packs) break;
        see(pack, batch[i]);
        float values[kSize];
        batch[i].open(values);
        f(parts_.begin_of(pack), values);
      }
    }
    parts_.each_single([&](int, std::int64_t at, auto) {
      float value[1] = {widen(row_[at])};
      f(at, value);
    });
  }

  const T* row_;
  AnyRow<T> parts_;
  ClosedPack<T>* stage_;
};

// A row's maximum, and the sum of exp(x - max), which is NaN where an x is NaN or +inf or all are -inf.
struct Exponentials {
  float max, sum;
};

// Reads a row once. A thread rescales its sum when its maximum rises (Milakov and Gimelshein 2018); then the block
// brings all to the largest. see(values) is called with every part of the row.
template <class T, class Scratch, class See>
__device__ Exponentials exponentials(const StagedRow<T>& row, const Scratch& scratch, const See& see) {
  float max = -INFINITY, sum = 0;
  row.first([&](std::int64_t, const auto& values) {
    see(values);
    float largest = max;
    for (const float value : values) largest = fmaxf(largest, value);  // NaN is passed over, and met in the sum
    const float shift = largest == -INFINITY ? 0.0f : largest;
    sum *= exp_below<T>(max - shift);
    for (const float value : values) sum += exp_below<T>(value - shift);
    max = largest;
  });
  const float row_max = reduce_block(max, -INFINITY, Largest{}, scratch);
  return {row_max, reduce_block(sum * exp_below<T>(max - row_max), 0.0f, Sum{}, scratch)};
}

}  // namespace keel::cuda
