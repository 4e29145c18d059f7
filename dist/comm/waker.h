#pragma once
// How a rank that is a thread waits until another one has done something for it.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "keel/runtime/language.h"

namespace keel {

// Of one rank, in all its groups. Any thread wakes it.
class Waker {
 public:
  // Something has happened that the rank may wait for.
  void wake();
  // Blocks until something has happened since the last call returned, for `limit` at most. A rank gives its core to
  // others for a while before it sleeps, as waking it takes longer. Where others keep the core, because more than the
  // ranks run on it, sleeping gets it back sooner: then it does so the next times.
  void wait(std::chrono::microseconds limit);

 private:
  void yield_until_change(std::uint64_t seen);

  std::atomic<std::uint64_t> changes_ = 0, seen_ = 0;
  std::atomic<int> sleepers_ = 0, rests_ = 0;  // rests: how often it sleeps at once
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace keel
