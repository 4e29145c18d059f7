// attention_backward: the way back, without the probabilities
//
// The exercise attention went forward for one head:
//
//   score(t, j) = (q[t] . k[j]) / sqrt(D),   p(t, j) = exp(score(t, j)) / sum
//   out[t] = the sum over j <= t of p(t, j) v[j]
//
// It has kept no p, since T x T numbers would be too many. It has kept out and lse[t], the log of that sum.
// With them each p comes back from one score, exp(score(t, j) - lse[t]), without another pass (Dao et al.
// 2022, "FlashAttention").
//
// The way back gets dout, the derivative of the loss with respect to out, and finds those with respect to q,
// k and v. For each pair of t and j <= t:
//
//   dv[j]       gets  p(t, j) dout[t]
//   dp(t, j)    =     dout[t] . v[j]
//   dscore(t,j) =     p(t, j) (dp(t, j) - delta[t]),   delta[t] = the sum over j of p(t, j) dp(t, j)
//   dq[t]       gets  dscore(t, j) / sqrt(D) k[j]
//   dk[j]       gets  dscore(t, j) / sqrt(D) q[t]
//
// delta[t] is a sum over all keys, which must be known before the first pair. Find it in out and dout alone:
// write its sum over j with dp put in, and change the order of its sums.
//
// Write attention_backward(). All matrices have T rows of D numbers. dq, dk and dv are 0 at first: add to
// them. Memory of your own is that of a few rows. To read afterwards: kernels/cpu/attention_backward.cpp,
// which is keel's.

#include <cmath>

#include "learn/given/matrix.h"

void attention_backward(learn::InMatrix q, learn::InMatrix k, learn::InMatrix v, learn::InMatrix out,
                        learn::In lse, learn::InMatrix dout, learn::OutMatrix dq, learn::OutMatrix dk,
                        learn::OutMatrix dv) {
  // Your code. T is q.rows(), and D is q.columns().
}
