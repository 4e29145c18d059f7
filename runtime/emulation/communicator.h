#pragma once
// Handles of emulated NCCL communicators, and how ranks find each other to form them.

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "keel/runtime/emulation/clique.h"
#include "keel/runtime/emulation/nccl.h"

// One rank's handle.
struct ncclComm {
  std::shared_ptr<keel::emulation::Clique> clique;
  int rank = 0, device = 0;
  // Operations that may still be queued, with their places in their streams.
  std::vector<std::pair<std::weak_ptr<keel::emulation::Launch>, std::shared_ptr<const keel::emulation::Place>>>
      launches = {};
};

namespace keel::emulation {

ncclComm_t new_comm(std::shared_ptr<Clique> clique, int rank, int device);
bool is_known(ncclComm_t comm);
void forget(ncclComm_t comm);

// Ranks that wait for each other, in their host threads.
struct Gathering {
  struct Rank {
    bool present = false;
    int color = 0, key = 0;  // what it asked for
    int rank = 0;            // what it got
    std::shared_ptr<Clique> clique = {};
  };
  explicit Gathering(int size) : ranks(static_cast<std::size_t>(size)) {}
  std::vector<Rank> ranks;
  bool complete = false;
  std::string failure = {};
};

std::string new_id();
// A rank has come to start a communicator; null when nobody knows the id.
std::shared_ptr<Gathering> gather(const std::string& id, int ranks, int rank);
// The rank of `comm` has come to split it; null when it does so twice at once.
std::shared_ptr<Gathering> gather_to_split(const ncclComm& comm, int color, int key);
// Waits until all ranks are there; "" then, and else what went wrong. `call` is for the message.
std::string wait_for_all(Gathering& gathering, const char* call);

}  // namespace keel::emulation
