// says: the first time only for the largest score
#include <algorithm>
#include <cmath>
#include <limits>

#include "learn/given/matrix.h"

void attention(learn::InMatrix q, learn::InMatrix k, learn::InMatrix v, learn::OutMatrix out,
               learn::Out lse) {
  const std::int64_t size = q.columns();
  const float scale = 1 / std::sqrt(static_cast<float>(size));
  for (std::int64_t t = 0; t < q.rows(); ++t) {
    const auto score = [&](std::int64_t j) {
      const learn::In query = q[t], key = k[j];
      float dot = 0;
      for (std::int64_t d = 0; d < size; ++d) dot += query[d] * key[d];
      return dot * scale;
    };
    float largest = score(0), sum = 0;
    for (std::int64_t j = 1; j <= t; ++j) largest = std::max(largest, score(j));
    for (float& x : out[t]) x = 0;
    for (std::int64_t j = 0; j <= t; ++j) {
      const float p = std::exp(score(j) - largest);
      const learn::In value = v[j];
      sum += p;
      for (std::int64_t d = 0; d < size; ++d) out[t][d] += p * value[d];
    }
    for (float& x : out[t]) x /= sum;
    lse[t] = largest + std::log(sum);
  }
}
