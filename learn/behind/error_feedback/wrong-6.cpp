// says: The k largest are those of gradient + residual, not of the gradient alone
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "learn/given/row.h"

void compress(learn::In gradient, std::int64_t k, learn::Out residual, learn::Out sent) {
  for (int i = 0; i < gradient.size(); ++i) {
    residual[i] += gradient[i];
    sent[i] = 0;
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(gradient.size()));
  std::iota(order.begin(), order.end(), 0);
  k = std::min(k, gradient.size());
  std::nth_element(order.begin(), order.begin() + k, order.end(),
                   [&](auto a, auto b) { return std::abs(gradient[a]) > std::abs(gradient[b]); });
  for (auto at = order.begin(); at != order.begin() + k; ++at) std::swap(sent[*at], residual[*at]);
}
