#pragma once
// The threads of one context: they share out the chunks of a job and never make it wait for one that is not running.
//
// An OpenMP team ends with a barrier that every member must reach. When another program holds a core, the member that
// should run there is the one all others wait for, spinning. Here each member begins with its own part of the chunks
// (the same part in job after job, so that its caches help) and then takes what others have left. A member that gets
// no core takes nothing, and nobody waits for it.

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "keel/runtime/parallel.h"

namespace keel {

class ThreadTeam {
 public:
  ThreadTeam() = default;
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // Calls f(chunk) for each chunk in [0, chunks), the caller being one of `threads` members. Rethrows what a chunk
  // threw. False, with nothing done, while another thread's job runs.
  bool try_run(int threads, std::int64_t chunks, FunctionRef<void(std::int64_t)> f);

 private:
  // Chunks [next, end) are still to be taken.
  struct alignas(64) Part {
    std::atomic<std::int64_t> next = 0;
    std::int64_t end = 0;
  };

  void start_members(int threads);
  void work(int member);
  void take_chunks(int member);

  std::mutex job_mutex_;  // held by the thread whose job runs
  std::vector<std::thread> members_;
  std::vector<Part> parts_;
  int job_threads_ = 0;
  const FunctionRef<void(std::int64_t)>* job_ = nullptr;
  std::exception_ptr failure_;
  std::mutex failure_mutex_;

  // A job's number times 2^17, plus 2^16 while it may be joined, plus the members inside. Members join by adding
  // one, so none can touch a job that has ended.
  std::atomic<std::uint64_t> state_ = 0;
  std::atomic<bool> stopping_ = false;
};

}  // namespace keel
