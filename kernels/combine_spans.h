#pragma once
// The sum of several ranks' numbers, in the order that is written down, from wherever they lie to wherever it is
// wanted.

#include <cstddef>
#include <cstdint>
#include <span>

#include "keel/kernels/combine.h"

namespace keel {

struct CombineSpans {
  DType dtype, result_dtype;  // of the terms; of the results, the same or fp32
  CombineOp op = CombineOp::sum;
  std::int64_t divisor = 0;  // of a mean; 0: the number of terms
};

// results[j][i] = terms[0][i] op terms[1][i] op ..., for the elements [begin, end), in the calling thread: what
// kernels::combine() does on the processor. A result may be one of the terms where the dtypes are the same. The sum of
// a block is copied to all results while it is in the first-level cache.
void combine_spans(const CombineSpans& args, std::span<const std::byte* const> terms,
                   std::span<std::byte* const> results, std::int64_t begin, std::int64_t end);

}  // namespace keel
