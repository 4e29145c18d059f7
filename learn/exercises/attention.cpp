// attention: softmax without the scores of all pairs
//
// Each position of a text asks the positions up to its own (Vaswani et al. 2017, "Attention is all you
// need"):
//
//   score(t, j) = (q[t] . k[j]) / sqrt(D)                     for j = 0 ... t: it sees no later one
//   out[t] = the sum over j of p(t, j) v[j],                  p(t, .) = softmax of score(t, .)
//
// q, k, v and out have T rows of D numbers. The scores of all pairs are T x T numbers, and for a long text
// they are more than all else together. They need not be held, not even one row of them. Softmax goes through
// its scores once (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"; Dao et al. 2022,
// "FlashAttention") with, for one t,
//
//   largest   the largest score so far
//   sum       the sum of exp(score - largest) so far
//   out[t]    the sum of exp(score - largest) v[j] so far
//
// A larger score makes another `largest`: then both sums were made with the old one, and must be scaled to
// the new one.
//
// Write attention(). It also writes lse[t] = the log of the sum of exp(score(t, j)), from which the way back
// gets the probabilities again. Look at each pair of t and j once: turn to k[j] and v[j] once, as in `const
// learn::In key = k[j]`. Memory of your own is that of a few rows, whatever T is. To read afterwards:
// kernels/cpu/attention.cpp, which is keel's.

#include <cmath>
#include <limits>

#include "learn/given/matrix.h"

void attention(learn::InMatrix q, learn::InMatrix k, learn::InMatrix v, learn::OutMatrix out,
               learn::Out lse) {
  // Your code. T is q.rows(), and D is q.columns().
}
