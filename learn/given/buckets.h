#pragma once
// What backward and the training loop tell whoever reduces the gradients.

#include <memory>

#include "learn/given/ranks.h"

namespace learn {

class Reducer {
 public:
  virtual ~Reducer() = default;
  // Gradient `parameter` of this step is there. Called once for each, in any order; the last parameter is
  // usually the first.
  virtual void arrived(int parameter) = 0;
  // Behind the last arrived() of a step. When it returns, each gradient is the sum of all ranks'.
  virtual void finish() = 0;
};

}  // namespace learn
