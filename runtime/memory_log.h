#pragma once
// What an allocator counts, change by change: which memory was there when, and what for.

#include <cstdint>
#include <span>
#include <vector>

#include "keel/runtime/allocator.h"

namespace keel {

// Without pointers to follow, so that ranks can send it as it is.
struct MemoryChange {
  std::int64_t time = 0;    // microseconds of the steady clock
  std::int64_t bytes = 0;   // negative: given back
  std::uint64_t block = 0;  // the address: what is given back is the last that came there. 0: memory of others, or
                            // all that a purpose had when the log began
  std::int32_t rank = 0;
  Purpose purpose = Purpose::parameter;
};

// Records an allocator's changes between begin() and end(); one log at a time watches an allocator. For any thread.
class MemoryLog final : public MemoryWatcher {
 public:
  // Changes after the first `capacity` are counted, not kept: recording never allocates.
  explicit MemoryLog(int rank, std::size_t capacity = std::size_t{1} << 18);
  ~MemoryLog() override { end(); }
  MemoryLog(const MemoryLog&) = delete;
  MemoryLog& operator=(const MemoryLog&) = delete;

  // Forgets what it has, and begins with what each purpose has now. The allocator must live until end().
  void begin(Allocator& allocator);
  void end();

  // In the order in which they happened; to be read between end() and the next begin().
  std::span<const MemoryChange> changes() const { return changes_; }
  std::int64_t dropped() const { return dropped_; }

  void changed(const void* block, std::int64_t bytes, Purpose purpose) noexcept override;

 private:
  int rank_;
  std::size_t capacity_;
  Allocator* allocator_ = nullptr;  // watched
  std::vector<MemoryChange> changes_;
  std::int64_t dropped_ = 0;
};

// The most bytes of all purposes that were there at once, and after which change: -1 where there is none.
struct MemoryPeak {
  std::int64_t bytes = 0;
  std::int64_t after = -1;
};
MemoryPeak peak_of(std::span<const MemoryChange> changes);

}  // namespace keel
