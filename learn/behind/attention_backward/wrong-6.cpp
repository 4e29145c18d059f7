// says: with the square of T
#include <cmath>
#include <vector>

#include "learn/given/matrix.h"

namespace {

float dot(learn::In a, learn::In b) {
  float sum = 0;
  for (std::int64_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}

void add(learn::Out to, float factor, learn::In x) {
  for (std::int64_t d = 0; d < x.size(); ++d) to[d] += factor * x[d];
}

}  // namespace

void attention_backward(learn::InMatrix q, learn::InMatrix k, learn::InMatrix v, learn::InMatrix out,
                        learn::In lse, learn::InMatrix dout, learn::OutMatrix dq, learn::OutMatrix dk,
                        learn::OutMatrix dv) {
  const float scale = 1 / std::sqrt(static_cast<float>(q.columns()));
  const auto length = static_cast<std::size_t>(q.rows());
  std::vector<std::vector<float>> p(length, std::vector<float>(length)), dp = p;
  for (std::int64_t t = 0; t < q.rows(); ++t) {
    float delta = 0;
    for (std::int64_t j = 0; j <= t; ++j) {
      float& one = p[static_cast<std::size_t>(t)][static_cast<std::size_t>(j)];
      float& done = dp[static_cast<std::size_t>(t)][static_cast<std::size_t>(j)];
      one = std::exp(dot(q[t], k[j]) * scale - lse[t]);
      done = dot(dout[t], v[j]);
      delta += one * done;
    }
    for (std::int64_t j = 0; j <= t; ++j) {
      const float one = p[static_cast<std::size_t>(t)][static_cast<std::size_t>(j)];
      const float dscore = one * (dp[static_cast<std::size_t>(t)][static_cast<std::size_t>(j)] - delta);
      add(dv[j], one, dout[t]);
      add(dq[t], dscore * scale, k[j]);
      add(dk[j], dscore * scale, q[t]);
    }
  }
}
