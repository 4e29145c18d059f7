#pragma once
// The sum of several ranks' numbers, in the order that is written down, from wherever they lie to wherever it is
// wanted.

#include <cstddef>
#include <cstdint>
#include <span>

#include "keel/kernels/combine.h"

namespace keel {

// results[j][i] = terms[0][i] op terms[1][i] op ..., for the elements [begin, end), with the bits of kernels::combine,
// in the calling thread. A result may be one of the terms. What was added is written from the first-level cache,
// however many results there are.
void combine_spans(DType dtype, CombineOp op, std::span<const std::byte* const> terms,
                   std::span<std::byte* const> results, std::int64_t begin, std::int64_t end);

}  // namespace keel
