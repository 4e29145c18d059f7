// says: as many as without checkpointing
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "learn/given/chain.h"

learn::Activation gradient(learn::Chain& chain, learn::Activation x, learn::Random& random) {
  const int n = chain.size();
  std::vector<learn::Activation> all;
  all.push_back(std::move(x));
  for (int i = 0; i < n; ++i) all.push_back(chain.forward(i, all.back(), random));
  learn::Activation dy = chain.loss_gradient(all.back());
  for (int i = n - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    dy = chain.backward(i, all[at], all[at + 1], dy);
  }
  return dy;
}
