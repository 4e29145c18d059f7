// says: they must begin at 0 in each row
#include "learn/given/matrix.h"

void layer_norm_backward(learn::InMatrix x, learn::InMatrix dy, learn::In gain, learn::In mean,
                         learn::In inverse, learn::OutMatrix dx, learn::Out dgain, learn::Out dbias) {
  const auto n = static_cast<float>(x.columns());
  float mean_dz = 0, mean_dz_z = 0;
  for (int row = 0; row < x.rows(); ++row) {
    for (int i = 0; i < x.columns(); ++i) {
      const float z = (x[row][i] - mean[row]) * inverse[row], dz = dy[row][i] * gain[i];
      mean_dz += dz / n;
      mean_dz_z += dz * z / n;
      dgain[i] += dy[row][i] * z;
      dbias[i] += dy[row][i];
    }
    for (int i = 0; i < x.columns(); ++i) {
      const float z = (x[row][i] - mean[row]) * inverse[row];
      dx[row][i] = inverse[row] * (dy[row][i] * gain[i] - mean_dz - z * mean_dz_z);
    }
  }
}
