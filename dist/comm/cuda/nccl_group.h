#pragma once
// One rank's place in a group of NCCL: the handle, the stream, and the watch over what is under way.
//
// A device that waits for a rank which never comes waits for ever, and so does a host that waits for the device. So a
// thread watches: a collective that takes too long, an error that NCCL reports, or another rank's failure end the work
// of this rank, and from then on every call says why.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "keel/dist/comm/cuda/nccl.h"
#include "keel/dist/comm/nccl_communicator.h"

namespace keel::cuda {

class NcclGroup {
 public:
  // Takes the handle over.
  NcclGroup(const Context& context, std::unique_ptr<Communicator> control, const NcclOptions& options, ncclComm_t comm);
  ~NcclGroup() { close(); }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::vector<int>& nodes() const { return nodes_; }
  const Context& context() const { return context_; }
  const Stream& stream() const { return stream_; }
  const NcclOptions& options() const { return options_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  // Calls f(handle), which queues work in the group's stream (the context's current one meanwhile), and returns the
  // event of its end. `what` is for messages.
  Event queue(const std::string& what, const std::function<void(ncclComm_t)>& f);
  // Calls f(control). What it throws is the group's failure.
  void ask_control(const std::function<void(Communicator&)>& f);

  // Throws the group's failure, after a look for one.
  void check();
  // Gives the group up: tells the other ranks and ends this one's work. The first reason stays.
  void fail(const std::string& reason) noexcept;
  // Blocks until nothing is under way any more, or throws.
  void drain();
  // Closes after what is under way, or at once where that has failed or the stack is unwinding.
  void close() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct Flight {
    std::string what;
    Clock::time_point begun;
    std::optional<Event> end = {};  // once it is in the stream
  };

  void watch();
  std::string find_late();
  void meet_control() noexcept;
  void look(bool may_ask) noexcept;
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  bool note(const std::string& reason) noexcept;
  std::string failure();
  void throw_failure();
  void end_work() noexcept;

  const Context context_;
  const Stream stream_;
  const NcclOptions options_;
  const std::chrono::milliseconds timeout_;
  const int rank_, size_;
  const std::vector<int> nodes_;
  const int exceptions_ = std::uncaught_exceptions();

  std::timed_mutex calls_;  // held while NCCL is called
  std::atomic<ncclComm_t> comm_;
  std::mutex asking_;  // held while the control is used
  std::unique_ptr<Communicator> control_;
  std::atomic<bool> untold_ = false;  // the control does not know of the failure

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<Flight> flights_;  // in the stream's order
  std::string failure_;
  std::atomic<bool> failed_ = false;
  bool closing_ = false;
  std::thread watcher_;
};

}  // namespace keel::cuda
