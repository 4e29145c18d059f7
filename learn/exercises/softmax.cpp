// softmax: probabilities from scores
//
// A model ends in a score for each word, and any number may be a score. Softmax makes probabilities of them:
//
//   y[i] = exp(x[i]) / (exp(x[0]) + exp(x[1]) + ...)
//
// They are positive, and their sum is 1. Scores of a real model reach the hundreds, and exp(89) is already
// too large for 32 bits.
//
// Write softmax() for one row. x and y have the same size, which is not 0. To read afterwards:
// kernels/cpu/softmax.cpp, which is keel's.

#include <cmath>

#include "learn/given/row.h"

void softmax(learn::In x, learn::Out y) {
  // Your code.
}
