#pragma once
// Collectives on the memory of devices, through that of their processors: for GPUs without NCCL between them.

#include <memory>

#include "keel/dist/comm/communicator.h"

namespace keel {

// Takes over the ranks' communicator. A tensor of a device is copied to the processor beside the device's other work.
// Once it has arrived its collective begins, in the order in which collectives were asked for. The result goes back in
// the current stream of the thread that waits for it. Tensors of the processor are passed on as they are.
std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> ranks);

}  // namespace keel
