#include "keel/dist/comm/waker.h"

#include <thread>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kYields = 1000, kRests = 100;
// Several times what the other ranks of a core do between two of this one's turns.
constexpr auto kSlowYield = std::chrono::microseconds(500);

}  // namespace

void Waker::wake() {
  ++changes_;
  if (sleepers_ == 0) return;
  // Whoever has looked and is about to sleep does so first. Not under the lock, for which it would wait.
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

void Waker::wait(std::chrono::microseconds limit) {
  const std::uint64_t seen = seen_;
  yield_until_change(seen);
  if (changes_ == seen) {
    ++sleepers_;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, limit, [&] { return changes_ != seen; });
    }
    --sleepers_;
  }
  seen_ = changes_.load();
}

void Waker::yield_until_change(std::uint64_t seen) {
  if (rests_ > 0) {
    --rests_;
    return;
  }
  Clock::time_point before = Clock::now();
  for (int i = 0; i < kYields && changes_ == seen; ++i) {
    std::this_thread::yield();
    const Clock::time_point now = Clock::now();
    if (now - before > kSlowYield) {
      rests_ = kRests;
      return;
    }
    before = now;
  }
}

}  // namespace keel
