#pragma once
// How much memory a library's kernel may work in.

#include <algorithm>
#include <cstdint>

#include "keel/kernels/cuda/stream.h"

namespace keel::cuda {

// Bytes that leave a run its own memory: half of what nobody uses now, on the device or in the context's cache, and no
// more than a quarter of the device. The quarter alone decides wherever memory is not scarce, so that runs on devices
// of one size choose alike.
inline std::int64_t workspace_limit(const Context& context) {
  context.api().make_current();
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  const MemoryReport report = context.memory();
  const std::size_t cached = report.reserved - std::min(report.reserved, report.total.current);
  return static_cast<std::int64_t>(std::min((free + cached) / 2, total / 4));
}

}  // namespace keel::cuda
