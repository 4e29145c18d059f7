#include "keel/runtime/memory_log.h"

#include "keel/runtime/stopwatch.h"

namespace keel {

MemoryLog::MemoryLog(int rank, std::size_t capacity) : rank_(rank), capacity_(capacity) { changes_.reserve(capacity); }

void MemoryLog::begin(Allocator& allocator) {
  end();
  changes_.clear();
  dropped_ = 0;
  allocator_ = &allocator;
  allocator.watch(this);
}

void MemoryLog::end() {
  if (allocator_ != nullptr) allocator_->watch(nullptr);
  allocator_ = nullptr;
}

void MemoryLog::changed(const void* block, std::int64_t bytes, Purpose purpose) noexcept {
  if (changes_.size() == capacity_) {
    ++dropped_;
    return;
  }
  changes_.push_back({.time = microseconds_now(),
                      .bytes = bytes,
                      .block = reinterpret_cast<std::uint64_t>(block),
                      .rank = rank_,
                      .purpose = purpose});
}

MemoryPeak peak_of(std::span<const MemoryChange> changes) {
  MemoryPeak peak;
  std::int64_t now = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    now += changes[i].bytes;
    if (now > peak.bytes) peak = {now, static_cast<std::int64_t>(i)};
  }
  return peak;
}

}  // namespace keel
