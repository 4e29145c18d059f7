#pragma once
// Collectives that go on while the caller computes, by a thread of their own. It pays where a processor is free for it:
// where all compute, polling between operations costs less.

#include <memory>

#include "keel/dist/comm/communicator.h"

namespace keel {

// Takes over the ranks' communicator. All that is split off from the result shares the thread. Calls of the inner
// communicator come from two threads, one at a time, so an MPI must offer MPI_THREAD_SERIALIZED (see
// Communicator::allows_threads()); throws an Error where it does not. A failure is thrown where somebody waits.
std::unique_ptr<Communicator> make_background_communicator(std::unique_ptr<Communicator> ranks);

}  // namespace keel
