#pragma once
// Finds memory that grows from step to step: what a run keeps and never uses again.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "keel/runtime/allocator.h"

namespace keel {

// Of each purpose, the least that is in use after any of `window` steps is compared with that of the windows before: so
// what comes and goes (evaluations, checkpoints, batches of other lengths) does not count. What has grown in each of
// three windows in a row, by a hundredth and a MiB at least, is told once. The process's own memory, which keel does
// not count, is compared at the ends of windows, and told where it grew by a twentieth and 32 MiB.
class MemoryGrowth {
 public:
  static constexpr int kWindows = 3;

  explicit MemoryGrowth(std::int64_t window) : window_(window) {}  // in steps; 0: nobody looks

  // After each step. `own_bytes` asks for the process's own memory. Returns what has grown, in words; empty: nothing.
  template <class F>
  std::string note(const MemoryReport& memory, const F& own_bytes) {
    if (window_ == 0) return "";
    count(memory);
    return ++steps_ % window_ == 0 ? compare(own_bytes()) : "";
  }

 private:
  void count(const MemoryReport& memory);
  std::string compare(std::int64_t own_bytes);

  std::int64_t window_, steps_ = 0;
  std::array<std::int64_t, kPurposeCount> least_ = {};  // in this window
  // By purpose, and behind them the process; of the latest windows, oldest first.
  std::array<std::vector<std::int64_t>, kPurposeCount + 1> before_;
  std::array<bool, kPurposeCount + 1> was_told_ = {};
};

}  // namespace keel
