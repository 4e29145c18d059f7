// cuda_attention: attention in one pass over the keys
//
// One head. q has `queries` rows, k and v have `keys` rows, each of kHead numbers. Each query looks at all
// keys:
//
//   score[j] = (q[i] . k[j]) / sqrt(kHead)
//   out[i]   = (exp(score[0]) * v[0] + exp(score[1]) * v[1] + ...) / (exp(score[0]) + exp(score[1]) + ...)
//
// Large scores overflow, so softmax subtracts the largest score from each; but that is known only when all
// keys have been seen. One pass is enough all the same (Milakov and Gimelshein 2018; Dao et al. 2022,
// FlashAttention). For its query, a thread keeps of the keys so far:
//
//   the largest score,
//   the sum of exp(score[j] - largest),
//   and the kHead sums of exp(score[j] - largest) * v[j].
//
// When the largest score grows from `before` to `largest`, all that was added up so far is multiplied by
// exp(before - largest).
//
// Write attention(). A block has kTile threads, one for each of kTile queries, and block b begins with query
// kTile * b. All its threads together bring the next kTile rows of k and of v into shared memory; then each
// thread goes through them. Neither count need be a multiple of kTile, and neither is 0. expf(), sqrtf() and
// fmaxf() are there, and -INFINITY is below every score. LEARN_SHARED(float, tile, n); in the kernel is
// CUDA's `__shared__ float tile[n];`, with its accesses checked. To read afterwards:
// kernels/cuda/attention.cu and kernels/cuda/attention_tiles.h.

#include "learn/given/kernel.h"

constexpr int kHead = 16;
constexpr int kTile = 32;

__global__ void attention(learn::Global<const float> q, learn::Global<const float> k,
                          learn::Global<const float> v, learn::Global<float> out, int queries, int keys) {
  // Your code.
}
