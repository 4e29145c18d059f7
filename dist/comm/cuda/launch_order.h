#pragma once
// The order in which a device begins the collectives of several communicators.
//
// Kernels of NCCL wait for those of other devices. Where two communicators have streams of their own, one device may
// begin with the first one's and another device with the second one's, and where a device has no room for both, neither
// ends. So all devices must begin them in one order: that in which their hosts ask, which is the same on all ranks.

#include "keel/runtime/context.h"

namespace keel::cuda {

// Before the first call of NCCL. From 2.26 on NCCL keeps the host's order if NCCL_LAUNCH_ORDER_IMPLICIT is 1, which
// this puts into the environment unless it is there. The environment must not be read by another thread meanwhile.
void ask_for_launch_order();

// The stream of a communicator on the context's device: one of its own where NCCL keeps the order, else the one that
// all communicators of the context share.
Stream stream_for_collectives(const Context& context);

}  // namespace keel::cuda
