#pragma once
// Collectives on the memory of GPUs, one device to a rank, by NCCL.
//
// Work goes to a stream of the communicator's own, whose kernels go first. It begins after what the caller's current
// stream holds when it is asked for, and Work::wait() makes the caller's current stream come after it: neither blocks.
// Memory may be given back as soon as the collective has been asked for.

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "keel/dist/comm/communicator.h"

namespace keel {

// In which order all_reduce and reduce_scatter add.
enum class ReduceOrder : unsigned char {
  written,  // that of the algorithm, to the bit what it gives on processors
  fast,     // NCCL's own: least time, but bits depend on its version and on the machines; NaN may lose to a number
};

struct NcclOptions {
  std::string algorithm = "direct";  // of all_reduce and reduce_scatter; see keel/dist/comm/algorithms.h
  ReduceOrder order = ReduceOrder::written;
  // How long a collective may take from when it was asked for, the control's unless given. Then it is given up, and the
  // communicator with it.
  std::optional<std::chrono::milliseconds> timeout = {};
  // The same for forming a communicator, splitting and ending it, which take NCCL seconds.
  std::chrono::milliseconds forming_timeout = std::chrono::minutes(5);
  // At every k-th collective the ranks wait for each other and compare what they asked for since they last did: 1 tells
  // of a difference before anything is written and names a rank that does not come, 0 never compares. What is not
  // compared hangs until the time-out, or gives wrong numbers, where ranks do not agree. Messages between two ranks are
  // not compared.
  int check_every = 0;
};

// Empty where this build has NCCL; else why it has not.
std::string why_no_nccl();

// Every rank of the control's group calls it, with a context of its own device and equal options. `control` carries
// what goes between hosts: how ranks find each other, comparisons, barriers, tensors of the processor, the reason of a
// failure. Its ranks and nodes are the new communicator's. To keep a communicator, give split(0, rank()) of it.
//
// A failure of one rank is one of all: what is under way ends without a result, and every later call throws an Error of
// kind peer. A thread of the communicator's own, which uses the alarm of the control and nothing else of it, sees to
// that while a rank waits for its device. Where the control has no alarm, as with processes of MPI, such a rank hears
// of the failure at its next call; its wait ends with what NCCL itself notices, and at the latest with the time-out.
//
// send and receive take their turn among the collectives, so both ranks must ask for them between the same two; those
// in between, up to the first wait for one, are under way together.
//
// Several communicators on one device go on beside each other, and begin their collectives in the order in which they
// are asked for, which must be the same on all ranks. NCCL sees to that from 2.26 on, if NCCL_LAUNCH_ORDER_IMPLICIT is
// 1 in the environment: the first call here sets it where it is not set, so no other thread may read the environment
// meanwhile. Otherwise the communicators of one context share a stream, and their collectives come one after the other.
std::unique_ptr<Communicator> make_nccl_communicator(const Context& context, std::unique_ptr<Communicator> control,
                                                     const NcclOptions& options = {});

}  // namespace keel
