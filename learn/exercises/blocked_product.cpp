// blocked_product: a matrix product that does not wait for memory
//
//   C = A B,   c(i, j) = the sum over k of a(i, k) b(k, j)
//
// A is M x K, B is K x N, C is M x N. Each number of A is used N times and each of B M times. A processor
// computes far faster than its memory brings numbers, so what counts is how often each is brought.
//
// Here the three matrices lie behind a cache of 32 KiB, 8192 numbers. It holds 512 lines of 64 bytes, 16
// numbers that are side by side in a row. The use of a number whose line is not there loads that line, and
// the line that was used longest ago has to go. Nothing is timed: the loads are counted.
//
// Three plain loops sweep over all of B for each row of A. If B is larger than the cache, each sweep loads it
// again. So cut the matrices into blocks: take a block of A and a block of B, add their product to a block of
// C, and finish with them while they are in the cache. Three blocks of s x s numbers must fit, 3 s s <= 8192,
// and the larger s, the fewer loads.
//
// Write product(). a(i, k) reads a number, c(i, j) += ... adds to one. c is 0 at first. No size need be a
// multiple of s. Keep no copies of your own: the cache does not see them. To read afterwards:
// kernels/cpu/gemm.cpp and kernels/cpu/block_product.h, which are keel's.

#include <algorithm>

#include "learn/given/cached_matrix.h"

void product(const learn::CachedMatrix& a, const learn::CachedMatrix& b, learn::CachedMatrix& c) {
  // Your code. a.rows(), a.columns() and b.columns() are M, K and N.
}
