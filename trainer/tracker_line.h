#pragma once
// One tracker's thread and the queue that leads there.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "keel/runtime/context.h"
#include "keel/trainer/tracker.h"

namespace keel {

class TrackerLine {
 public:
  using Clock = std::chrono::steady_clock;
  using Delivery = std::function<void(Tracker&)>;
  using News = std::vector<std::pair<LogLevel, std::string>>;

  // Begins the tracker, in the thread that all of its functions are called by. `id_file` keeps its id.
  TrackerLine(std::string label, std::unique_ptr<Tracker> tracker, RunDescription run, std::string id_file,
              double flush_seconds);
  ~TrackerLine();  // once wait_for_end() was called

  // Takes one more delivery where fewer than `capacity` wait. After a failure of the tracker, none.
  void push(Delivery delivery, std::size_t capacity);
  void ask_end(RunStatus status);
  // Whether the tracker came to its end; else it is left behind.
  bool wait_for_end(Clock::time_point deadline);
  // What is to be told since the last call.
  News take_news();

 private:
  // What the two threads share; a thread that is left behind keeps it.
  struct Shared;
  static void work(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace keel
