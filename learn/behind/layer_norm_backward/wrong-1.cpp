// says: as if the row's mean and deviation were constants
#include "learn/given/matrix.h"

void layer_norm_backward(learn::InMatrix x, learn::InMatrix dy, learn::In gain, learn::In mean,
                         learn::In inverse, learn::OutMatrix dx, learn::Out dgain, learn::Out dbias) {
  for (int row = 0; row < x.rows(); ++row)
    for (int i = 0; i < x.columns(); ++i) {
      dgain[i] += dy[row][i] * (x[row][i] - mean[row]) * inverse[row];
      dbias[i] += dy[row][i];
      dx[row][i] = dy[row][i] * gain[i] * inverse[row];
    }
}
