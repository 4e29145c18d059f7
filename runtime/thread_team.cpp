#include "keel/runtime/thread_team.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace keel {
namespace {

constexpr std::uint64_t kOpen = std::uint64_t{1} << 16;
constexpr std::uint64_t kJob = std::uint64_t{1} << 17;
constexpr std::uint64_t kInside = kOpen - 1;

// Polls before a thread goes to sleep: about 20 microseconds, longer than most gaps between two jobs of a training
// step and shorter than a wake-up costs when it is in vain.
constexpr int kPolls = 500;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits until the value is no longer `old`.
std::uint64_t wait_for_change(const std::atomic<std::uint64_t>& value, std::uint64_t old) {
  for (int poll = 0; poll < kPolls; ++poll) {
    const std::uint64_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    pause();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

ThreadTeam::~ThreadTeam() {
  stopping_ = true;
  state_.fetch_add(kJob);
  state_.notify_all();
  for (std::thread& member : members_) member.join();
}

void ThreadTeam::start_members(int threads) {
  if (static_cast<int>(members_.size()) >= threads - 1) return;
  parts_ = std::vector<Part>(static_cast<std::size_t>(threads));
  while (static_cast<int>(members_.size()) < threads - 1)
    members_.emplace_back([this, member = static_cast<int>(members_.size()) + 1] { work(member); });
}

bool ThreadTeam::try_run(int threads, std::int64_t chunks, FunctionRef<void(std::int64_t)> f) {
  const std::unique_lock lock(job_mutex_, std::try_to_lock);
  if (!lock) return false;
  start_members(threads);
  for (int t = 0; t < threads; ++t) {
    Part& part = parts_[static_cast<std::size_t>(t)];
    part.next.store(chunks * t / threads, std::memory_order_relaxed);
    part.end = chunks * (t + 1) / threads;
  }
  job_ = &f;
  job_threads_ = threads;
  failure_ = nullptr;
  state_.fetch_add(kJob | kOpen, std::memory_order_release);
  state_.notify_all();

  take_chunks(0);

  // Closed to those who have not joined; then those inside finish the chunks that they hold.
  std::uint64_t now = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  while ((now & kInside) != 0) now = wait_for_change(state_, now);
  if (failure_) std::rethrow_exception(failure_);
  return true;
}

void ThreadTeam::work(int member) {
#ifdef _OPENMP
  omp_set_num_threads(1);  // libraries that are called from a chunk start no team of their own
#endif
  std::uint64_t seen = 0;  // number of the last job looked at
  while (true) {
    std::uint64_t now = state_.load(std::memory_order_acquire);
    while (now / kJob == seen) now = wait_for_change(state_, now);
    if (stopping_.load()) return;
    seen = now / kJob;
    bool joined = false;
    while (!joined && (now & kOpen) != 0 && now / kJob == seen)
      joined = state_.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel);
    if (!joined) continue;
    if (member < job_threads_) take_chunks(member);
    const std::uint64_t left = state_.fetch_sub(1, std::memory_order_acq_rel) - 1;
    if ((left & (kInside | kOpen)) == 0) state_.notify_all();  // the job's owner may sleep
  }
}

void ThreadTeam::take_chunks(int member) {
  for (int turn = 0; turn < job_threads_; ++turn) {
    Part& part = parts_[static_cast<std::size_t>((member + turn) % job_threads_)];
    while (part.next.load(std::memory_order_relaxed) < part.end) {
      const std::int64_t chunk = part.next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= part.end) break;
      try {
        (*job_)(chunk);
      } catch (...) {
        const std::lock_guard lock(failure_mutex_);
        if (!failure_) failure_ = std::current_exception();
        for (int t = 0; t < job_threads_; ++t)
          parts_[static_cast<std::size_t>(t)].next = parts_[static_cast<std::size_t>(t)].end;
      }
    }
  }
}

}  // namespace keel
