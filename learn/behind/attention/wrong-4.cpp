// says: grows with T
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "learn/given/matrix.h"

void attention(learn::InMatrix q, learn::InMatrix k, learn::InMatrix v, learn::OutMatrix out,
               learn::Out lse) {
  const std::int64_t size = q.columns();
  const float scale = 1 / std::sqrt(static_cast<float>(size));
  for (std::int64_t t = 0; t < q.rows(); ++t) {
    const learn::In query = q[t];
    std::vector<float> scores;
    float largest = -std::numeric_limits<float>::infinity(), sum = 0;
    for (std::int64_t j = 0; j <= t; ++j) {
      const learn::In key = k[j];
      float dot = 0;
      for (std::int64_t d = 0; d < size; ++d) dot += query[d] * key[d];
      scores.push_back(dot * scale);
      largest = std::max(largest, scores.back());
    }
    for (float& x : out[t]) x = 0;
    for (std::int64_t j = 0; j <= t; ++j) {
      const float p = std::exp(scores[static_cast<std::size_t>(j)] - largest);
      const learn::In value = v[j];
      sum += p;
      for (std::int64_t d = 0; d < size; ++d) out[t][d] += p * value[d];
    }
    for (float& x : out[t]) x /= sum;
    lse[t] = largest + std::log(sum);
  }
}
