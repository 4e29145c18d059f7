#pragma once
// How much memory a library's kernel may work in.

#include <algorithm>
#include <cstdint>

#include "keel/runtime/context.h"
#include "keel/runtime/device_api.h"

namespace keel::cuda {

// Bytes that leave a run its own memory: half of what nobody uses now, on the device or in the context's cache, and no
// more than a quarter of the device. The quarter alone decides wherever memory is not scarce, so that runs on devices
// of one size choose alike.
inline std::int64_t workspace_limit(const Context& context) {
  const DeviceMemory left = context.memory_left();
  return std::min(left.free / 2, left.total / 4);
}

}  // namespace keel::cuda
