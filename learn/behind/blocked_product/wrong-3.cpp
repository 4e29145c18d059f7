// says: Larger blocks are used more often
#include <algorithm>

#include "learn/given/cached_matrix.h"

void product(const learn::CachedMatrix& a, const learn::CachedMatrix& b, learn::CachedMatrix& c) {
  const std::int64_t s = 8, m = a.rows(), n = b.columns(), depth = a.columns();
  for (std::int64_t i0 = 0; i0 < m; i0 += s)
    for (std::int64_t j0 = 0; j0 < n; j0 += s)
      for (std::int64_t k0 = 0; k0 < depth; k0 += s)
        for (std::int64_t i = i0; i < std::min(i0 + s, m); ++i)
          for (std::int64_t k = k0; k < std::min(k0 + s, depth); ++k)
            for (std::int64_t j = j0; j < std::min(j0 + s, n); ++j) c(i, j) += a(i, k) * b(k, j);
}
