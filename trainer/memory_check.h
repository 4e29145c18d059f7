#pragma once
// Whether models and their engines fit into the memory of their machine and device, before anything is allocated.

#include "keel/dist/comm/communicator.h"
#include "keel/runtime/context.h"
#include "keel/runtime/device_api.h"
#include "keel/runtime/memory_limit.h"
#include "keel/trainer/config.h"
#include "keel/trainer/stack_models.h"

namespace keel {

// What there is for the ranks of a machine, and for those that share a device; unknown where it is 0.
struct MemorySupply {
  MemoryLimit machine;
  DeviceMemory device;
};
MemorySupply memory_supply(const Context& context);

// An AgreedError where what ranks need, by the plan (keel/trainer/run_plan.h), is more than the supply: those of a
// machine of its memory, and those of a device of what is free there. Activations are not part of it. The precision
// must have been decided, and the models need no memory yet. No check where the configuration asks for none
// (check_memory), or where the optimizer keeps gradients as rows, whose memory follows from the data. Collective.
void check_memory(const Config& config, const StackModels& models, Communicator& ranks, const Context& context,
                  const MemorySupply& supply);
inline void check_memory(const Config& config, const StackModels& models, Communicator& ranks, const Context& context) {
  check_memory(config, models, ranks, context, memory_supply(context));
}

}  // namespace keel
