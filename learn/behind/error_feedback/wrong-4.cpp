// says: Does a threshold send all numbers of one magnitude
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "learn/given/row.h"

void compress(learn::In gradient, std::int64_t k, learn::Out residual, learn::Out sent) {
  std::vector<float> magnitudes;
  for (int i = 0; i < gradient.size(); ++i) {
    residual[i] += gradient[i];
    magnitudes.push_back(std::abs(residual[i]));
  }
  std::sort(magnitudes.begin(), magnitudes.end(), std::greater<>());
  const float least =
      k == 0 ? INFINITY : magnitudes[static_cast<std::size_t>(std::min(k, gradient.size()) - 1)];
  for (int i = 0; i < gradient.size(); ++i) {
    sent[i] = std::abs(residual[i]) >= least ? residual[i] : 0;
    residual[i] -= sent[i];
  }
}
