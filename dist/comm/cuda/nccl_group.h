#pragma once
// One rank's place in a group of NCCL: the handle, the stream, and the watch over what is under way.
//
// A device that waits for a rank which never comes waits for ever, and so does a host that waits for the device. So a
// thread watches: a collective that takes too long, an error that NCCL reports, or another rank's failure end the work
// of this rank, and from then on every call says why.
//
// The control is for the caller's thread alone. The watcher has its alarm; where there is none, it hears of no other
// rank, and what it finds is told by the caller's next call.

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

#include "keel/dist/comm/cuda/nccl_handle.h"
#include "keel/dist/comm/nccl_communicator.h"

namespace keel::cuda {

class NcclGroup {
 public:
  // What the first work of a group is called: it gives the handle its communicator.
  static constexpr const char* kJoining = "joining its group";

  NcclGroup(const Context& context, std::unique_ptr<Communicator> control, const NcclOptions& options);
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
  Event queue(const std::string& what, const std::function<void(NcclHandle&)>& f) { return queue(what, f, timeout_); }
  // Has f(handle) give the handle its communicator, split it or end it.
  void form(const std::string& what, const std::function<void(NcclHandle&)>& f);
  // Calls f(control). What it throws is the group's failure.
  void ask_control(const std::function<void(Communicator&)>& f);
  // Where the rank is between two collectives, for messages: " (collective number 5, step 57)".
  void go_on_to(const std::string& place);

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
    std::chrono::milliseconds timeout;
    std::optional<Event> end = {};  // once it is in the stream
  };
  Event queue(const std::string& what, const std::function<void(NcclHandle&)>& f, std::chrono::milliseconds timeout);

  // By the caller's thread.
  std::string hear_control();
  void find(const std::string& own, Clock::duration patience);
  void throw_failure();
  void tell_control() noexcept;
  // By the watcher.
  void watch();
  void look();
  std::string hear_alarm();
  std::string find_late();
  // By both.
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  void note(const std::string& reason, bool is_told) noexcept;
  void replace_failure(const std::string& reason);
  std::string failure();
  std::string place();

  const Context context_;
  const Stream stream_;
  const NcclOptions options_;
  const std::chrono::milliseconds timeout_;
  const int rank_, size_;
  const std::vector<int> nodes_;
  const int exceptions_ = std::uncaught_exceptions();

  std::shared_ptr<Alarm> alarm_;  // null where the control has none
  std::unique_ptr<Communicator> control_;
  NcclHandle handle_;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<Flight> flights_;  // in the stream's order
  std::string failure_, next_place_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> untold_ = false;  // the other ranks do not know of the failure
  bool closing_ = false;
  std::thread watcher_;
};

}  // namespace keel::cuda
