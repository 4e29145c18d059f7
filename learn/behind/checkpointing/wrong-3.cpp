// says: from the beginning of the chain
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "learn/given/chain.h"

learn::Activation gradient(learn::Chain& chain, learn::Activation x, learn::Random& random) {
  const int n = chain.size();
  const learn::Random start = random;
  learn::Activation y = x;
  for (int i = 0; i < n; ++i) y = chain.forward(i, y, random);
  learn::Activation dy = chain.loss_gradient(y);
  for (int i = n - 1; i >= 0; --i) {
    learn::Random again = start;
    learn::Activation from = x;
    for (int before = 0; before < i; ++before) from = chain.forward(before, from, again);
    y = chain.forward(i, from, again);
    dy = chain.backward(i, from, y, dy);
  }
  return dy;
}
