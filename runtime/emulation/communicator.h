#pragma once
// Handles of emulated NCCL communicators, and how ranks find each other to form them.

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "keel/runtime/emulation/clique.h"
#include "keel/runtime/emulation/nccl.h"

namespace keel::emulation {

// Ranks that wait for each other to form communicators.
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

}  // namespace keel::emulation

// One rank's handle.
struct ncclComm {
  std::shared_ptr<keel::emulation::Clique> clique;  // null until all ranks have come
  int rank = 0, device = 0;
  bool blocks = true;
  bool finalized = false;
  // Operations that may not be done.
  std::vector<std::pair<std::weak_ptr<keel::emulation::Launch>, std::shared_ptr<const keel::emulation::Place>>>
      launches = {};

  std::mutex mutex = {};                                       // of what follows
  std::function<ncclResult_t()> goes_on = {};                  // the call in progress: how far it is now
  unsigned questions = 0;                                      // before it is asked that
  std::shared_ptr<keel::emulation::Gathering> gathering = {};  // that it waits for
  ncclResult_t result = ncclSuccess;                           // of the latest one that is over
  std::string why = {};                                        // it failed
};

namespace keel::emulation {

ncclComm_t new_comm(std::shared_ptr<Clique> clique, int rank, int device, bool blocks);
bool is_known(ncclComm_t comm);
// False where a thread is inside a call with the communicator, which stays then.
bool forget(ncclComm_t comm);

// A thread is inside a call with a communicator.
class Inside {
 public:
  explicit Inside(ncclComm_t comm);
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  explicit operator bool() const { return is_known_; }

 private:
  ncclComm_t comm_;
  bool is_known_;
};

std::string new_id();
// A rank has come to start a communicator; null when nobody knows the id.
std::shared_ptr<Gathering> gather(const std::string& id, int ranks, int rank);
// The rank of `comm` has come to split it; null when it does so twice at once.
std::shared_ptr<Gathering> gather_to_split(const ncclComm& comm, int color, int key);
// Waits until all ranks are there; "" then, and else what went wrong. `call` is for the message.
std::string wait_for_all(Gathering& gathering, const char* call);
// Whether that wait would be over.
bool is_settled(const Gathering& gathering);
void fail(Gathering& gathering, const std::string& why);

}  // namespace keel::emulation
