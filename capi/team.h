#pragma once
// Ranks that are threads of the host.

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/comm/thread_transport.h"

namespace keel::capi {

// What a keel_team is. From any thread.
class Team {
 public:
  Team(int size, std::chrono::milliseconds timeout);
  // The rank's end; each is given once. An Error otherwise.
  std::unique_ptr<Communicator> join(int rank);

 private:
  ThreadHub hub_;
  std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::vector<bool> is_taken_;
};

}  // namespace keel::capi
