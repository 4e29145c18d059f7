// says: The last block of a row or column is smaller
#include <algorithm>

#include "learn/given/cached_matrix.h"

void product(const learn::CachedMatrix& a, const learn::CachedMatrix& b, learn::CachedMatrix& c) {
  const std::int64_t s = 32, m = a.rows(), n = b.columns(), depth = a.columns();
  for (std::int64_t i0 = 0; i0 < m; i0 += s)
    for (std::int64_t j0 = 0; j0 < n; j0 += s)
      for (std::int64_t k0 = 0; k0 < depth; k0 += s)
        for (std::int64_t i = i0; i < i0 + s; ++i)
          for (std::int64_t k = k0; k < k0 + s; ++k)
            for (std::int64_t j = j0; j < j0 + s; ++j) c(i, j) += a(i, k) * b(k, j);
}
