#pragma once
// Bias and dropout for scores that lie in the registers of a warp.

#include "keel/kernels/cuda/attention_fragments.h"
#include "keel/kernels/cuda/attention_options.h"

namespace keel::cuda {

// Which weights of (16 kRowBlocks queries, 32 keys) are kept. Each lane asks for the eight keys of one column block, of
// its own rows, and the four that share rows exchange answers.
template <int kRowBlocks>
struct KeptByQuery {
  unsigned own = 0;  // byte 2 m + half: keys of column block lane % 4

  __device__ KeptByQuery(const HeadDropout& dropout, int first_query, int first_key) {
    const int lane = lane_id();
#pragma unroll 1
    for (int row = 0; row < 2 * kRowBlocks; ++row)
      own |= dropout.keeps(first_query + 8 * row + lane / 4, first_key + 8 * (lane % 4)) << 8 * row;
  }
  // f(m, i) for each score of a lane in column block n that is dropped. By the whole warp.
  template <class F>
  __device__ void each_dropped(int n, const F& f) const {
    const unsigned kept = __shfl_sync(kAllLanes, own, (lane_id() & ~3) + n) >> lane_id() % 4 * 2;
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if ((kept >> (8 * (2 * m + i / 2) + i % 2) & 1) == 0) f(m, i);
  }
};

// The same of (16 kRowBlocks keys, 32 queries): a lane asks for one query and all keys, and the eight that share
// columns exchange answers.
template <int kRowBlocks>
struct KeptByKey {
  unsigned own = 0;  // byte 2 m + half, of query 8 (lane / 8) + 2 (lane % 4) + lane / 4 % 2

  __device__ KeptByKey(const HeadDropout& dropout, int first_key, int first_query) {
    const int lane = lane_id();
#pragma unroll 1
    for (int row = 0; row < 2 * kRowBlocks; ++row)
      own |= dropout.keeps(first_query + 8 * (lane / 8) + 2 * (lane % 4) + lane / 4 % 2, first_key + 8 * row)
             << 8 * row;
  }
  template <class F>
  __device__ void each_dropped(int n, const F& f) const {
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      const unsigned kept = __shfl_sync(kAllLanes, own, 4 * (2 * n + column) + lane_id() % 4) >> lane_id() / 4;
#pragma unroll
      for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          if ((kept >> 8 * (2 * m + half) & 1) == 0) f(m, 2 * half + column);
    }
  }
};

// Scales a warp's scores and adds the bias to them. The first row and column are those of the warp; kKeysFirst: rows
// are keys and columns queries.
template <class T, bool kKeysFirst, int kRowBlocks, int kColumnBlocks>
__device__ void scale_and_add(const AttentionBias& bias, int b, int head, float scale,
                              Sums<kRowBlocks, kColumnBlocks>& scores, int first_row, int first_column) {
  const int row = first_row + lane_id() / 4, column = first_column + lane_id() % 4 * 2;
  if (bias.data == nullptr) {
    scores.each([&](float& score, int, int, int) { score *= scale; });
    return;
  }
  const HeadBias own = bias.of(b, head);
  const auto add = [&](auto tag) {
    scores.each([&](float& score, int m, int n, int i) {
      const int r = row + 16 * m + i / 2 * 8, c = column + 8 * n + i % 2;
      score = math::fma(score, scale, own.template at<decltype(tag)>(kKeysFirst ? c : r, kKeysFirst ? r : c));
    });
  };
  if (bias.dtype == DType::f32) add(float{});
  else add(T{});
}

}  // namespace keel::cuda
