// says: exp(score) overflows before it is divided
#include <cmath>

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
  for (std::int64_t t = 0; t < q.rows(); ++t) {
    const float delta = dot(dout[t], out[t]);
    for (std::int64_t j = 0; j <= t; ++j) {
      const float p = std::exp(dot(q[t], k[j]) * scale) / std::exp(lse[t]);
      const float dscore = p * (dot(dout[t], v[j]) - delta);
      add(dv[j], p, dout[t]);
      add(dq[t], dscore * scale, k[j]);
      add(dk[j], dscore * scale, q[t]);
    }
  }
}
