// says: each row of A sweeps over all of B
#include <algorithm>

#include "learn/given/cached_matrix.h"

void product(const learn::CachedMatrix& a, const learn::CachedMatrix& b, learn::CachedMatrix& c) {
  for (std::int64_t i = 0; i < a.rows(); ++i)
    for (std::int64_t k = 0; k < a.columns(); ++k)
      for (std::int64_t j = 0; j < b.columns(); ++j) c(i, j) += a(i, k) * b(k, j);
}
