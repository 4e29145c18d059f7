// says: The way through the deviation is missing
#include "learn/given/matrix.h"

void layer_norm_backward(learn::InMatrix x, learn::InMatrix dy, learn::In gain, learn::In mean,
                         learn::In inverse, learn::OutMatrix dx, learn::Out dgain, learn::Out dbias) {
  const auto n = static_cast<float>(x.columns());
  for (int row = 0; row < x.rows(); ++row) {
    float mean_dz = 0;
    for (int i = 0; i < x.columns(); ++i) {
      mean_dz += dy[row][i] * gain[i] / n;
      dgain[i] += dy[row][i] * (x[row][i] - mean[row]) * inverse[row];
      dbias[i] += dy[row][i];
    }
    for (int i = 0; i < x.columns(); ++i) dx[row][i] = inverse[row] * (dy[row][i] * gain[i] - mean_dz);
  }
}
