// says: was computed once more with another random number
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "learn/given/chain.h"

learn::Activation gradient(learn::Chain& chain, learn::Activation x, learn::Random& random) {
  const int n = chain.size(), length = static_cast<int>(std::ceil(std::sqrt(n)));
  std::vector<learn::Activation> inputs;  // of each segment
  std::vector<learn::Random> bookmarks;
  for (int i = 0; i < n; ++i) {
    const learn::Random here = random;
    learn::Activation y = chain.forward(i, x, random);
    if (i % length == 0) {
      inputs.push_back(std::move(x));
      bookmarks.push_back(here);
    }
    x = std::move(y);
  }
  learn::Activation dy = chain.loss_gradient(x);
  for (int begin = (n - 1) / length * length; begin >= 0; begin -= length) {
    const int end = std::min(begin + length, n);
    std::vector<learn::Activation> inside;
    inside.push_back(std::move(inputs.back()));
    learn::Random again = random;
    inputs.pop_back();
    bookmarks.pop_back();
    for (int i = begin; i < end; ++i) inside.push_back(chain.forward(i, inside.back(), again));
    for (int i = end - 1; i >= begin; --i) {
      const auto at = static_cast<std::size_t>(i - begin);
      dy = chain.backward(i, inside[at], inside[at + 1], dy);
    }
  }
  return dy;
}
