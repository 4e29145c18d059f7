// error_feedback: send a few numbers of a gradient, and lose nothing
//
// A gradient is compressed: only the k numbers of the largest magnitude are sent. What is small in every step
// would never be sent, and its weight would never move. Error feedback (Seide and others, 2014; Karimireddy
// and others, 2019) keeps what was not sent, and adds it to the next gradient:
//
//   p = gradient + residual
//   sent[i] = p[i] for the k numbers of the largest magnitude, and 0 for all others
//   residual = p - sent
//
// So all that was ever sent, plus the residual, is the sum of all gradients. A small number waits until it is
// large.
//
// Write compress(), which is one step. All three rows have the same size. residual is 0 before the first
// step, and stays as compress() leaves it until the next. Where magnitudes are equal, any of them may be
// sent, but no more than k. k may be 0, or more than there are numbers. To read afterwards:
// dist/strategies/error_feedback.h.

#include <algorithm>
#include <cmath>
#include <vector>

#include "learn/given/row.h"

void compress(learn::In gradient, std::int64_t k, learn::Out residual, learn::Out sent) {
  // Your code.
}
