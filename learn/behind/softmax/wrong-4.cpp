// says: Its mean is near 60
#include <cmath>

#include "learn/given/row.h"

void softmax(learn::In x, learn::Out y) {
  float mean = 0, sum = 0;
  for (const float v : x) mean += v / static_cast<float>(x.size());
  for (int i = 0; i < x.size(); ++i) sum += y[i] = std::exp(x[i] - mean);
  for (float& v : y) v /= sum;
}
