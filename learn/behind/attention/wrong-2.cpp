// says: A position must not see those after it
#include <algorithm>
#include <cmath>
#include <limits>

#include "learn/given/matrix.h"

void attention(learn::InMatrix q, learn::InMatrix k, learn::InMatrix v, learn::OutMatrix out,
               learn::Out lse) {
  const std::int64_t size = q.columns();
  const float scale = 1 / std::sqrt(static_cast<float>(size));
  for (std::int64_t t = 0; t < q.rows(); ++t) {
    const learn::In query = q[t];
    const learn::Out o = out[t];
    float largest = -std::numeric_limits<float>::infinity(), sum = 0;
    for (float& x : o) x = 0;
    for (std::int64_t j = 0; j < q.rows(); ++j) {
      const learn::In key = k[j], value = v[j];
      float score = 0;
      for (std::int64_t d = 0; d < size; ++d) score += query[d] * key[d] * scale;
      const float now = std::max(largest, score), shrink = std::exp(largest - now), p = std::exp(score - now);
      sum = sum * shrink + p;
      for (std::int64_t d = 0; d < size; ++d) o[d] = o[d] * shrink + p * value[d];
      largest = now;
    }
    for (float& x : o) x /= sum;
    lse[t] = largest + std::log(sum);
  }
}
