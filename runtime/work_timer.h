#pragma once
// How long work takes: a processor's by the clock, a device's by the clock of its stream.

#include <chrono>
#include <deque>
#include <utility>

#include "keel/runtime/context.h"
#include "keel/runtime/device_api.h"

namespace keel {

// Adds up what lies between start() and stop(). Nothing waits for a device: its time counts once it has passed there.
class WorkTimer {
 public:
  explicit WorkTimer(const Context& context) : context_(context) {}
  ~WorkTimer();
  WorkTimer(const WorkTimer&) = delete;
  WorkTimer& operator=(const WorkTimer&) = delete;

  // Between these two calls, the work that this thread asks of the context is timed. Not while a graph is recorded.
  void start();
  void stop();  // nothing, unless it runs
  double milliseconds() const;

  class Scope {
   public:
    explicit Scope(WorkTimer& timer) : timer_(timer) { timer_.start(); }
    ~Scope() { timer_.stop(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    WorkTimer& timer_;
  };

 private:
  using Clock = std::chrono::steady_clock;

  void count_passed() const;

  Context context_;
  bool runs_ = false;
  Clock::time_point begin_;
  NativeEvent begun_ = nullptr;
  mutable std::deque<std::pair<NativeEvent, NativeEvent>> under_way_;
  mutable double milliseconds_ = 0;
};

}  // namespace keel
