// says: Subtract the largest score so far
#include "learn/given/kernel.h"

constexpr int kHead = 16;
constexpr int kTile = 32;

__global__ void attention(learn::Global<const float> q, learn::Global<const float> k,
                          learn::Global<const float> v, learn::Global<float> out, int queries, int keys) {
  LEARN_SHARED(float, k_tile, kTile* kHead);
  LEARN_SHARED(float, v_tile, kTile* kHead);
  const int t = threadIdx.x, row = blockIdx.x * kTile + t;
  float query[kHead], sum[kHead] = {}, weights = 0;
  for (int d = 0; d < kHead; ++d) query[d] = row < queries ? q[row * kHead + d] : 0.0f;
  for (int first = 0; first < keys; first += kTile) {
    const int count = keys - first < kTile ? keys - first : kTile;
    for (int i = t; i < count * kHead; i += kTile) {
      k_tile[i] = k[first * kHead + i];
      v_tile[i] = v[first * kHead + i];
    }
    __syncthreads();
    for (int j = 0; j < count; ++j) {
      float score = 0;
      for (int d = 0; d < kHead; ++d) score += query[d] * k_tile[j * kHead + d];
      score /= sqrtf(kHead);
      const float weight = expf(score);
      weights += weight;
      for (int d = 0; d < kHead; ++d) sum[d] += weight * v_tile[j * kHead + d];
    }
    __syncthreads();
  }
  if (row < queries)
    for (int d = 0; d < kHead; ++d) out[row * kHead + d] = sum[d] / weights;
}
