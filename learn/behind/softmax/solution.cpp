#include <algorithm>
#include <cmath>

#include "learn/given/row.h"

void softmax(learn::In x, learn::Out y) {
  float largest = x[0], sum = 0;
  for (const float v : x) largest = std::max(largest, v);
  for (int i = 0; i < x.size(); ++i) sum += y[i] = std::exp(x[i] - largest);
  for (float& v : y) v /= sum;
}
