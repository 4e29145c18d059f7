#include "keel/runtime/allocator.h"

#include <algorithm>

#include "keel/runtime/device_api.h"
#include "keel/runtime/out_of_memory.h"

namespace keel {
namespace {

constexpr std::size_t kSmallestBlock = 64;

// Sizes are rounded to 1/8 of their magnitude, so that nearly equal requests share blocks.
std::size_t block_size(std::size_t bytes) {
  std::size_t step = kSmallestBlock;
  while (step * 8 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

std::string in_use_by_purpose(const MemoryReport& report) {
  std::string text;
  for (int i = 0; i < kPurposeCount; ++i) {
    const auto purpose = static_cast<Purpose>(i);
    if (report[purpose].current > 0)
      text += concat(text.empty() ? "" : ", ", name_of(purpose), ' ', report[purpose].current);
  }
  return text.empty() ? "nothing is in use" : concat(report.total.current, " bytes are in use (", text, ")");
}

}  // namespace

std::string_view name_of(Purpose purpose) {
  constexpr std::array<std::string_view, kPurposeCount> names = {"parameter", "gradient",  "optimizer", "activation",
                                                                 "bucket",    "workspace", "checkpoint"};
  return names[static_cast<std::size_t>(purpose)];
}

Allocator::Allocator() : Allocator(processor_api(), Device{}) {}

Allocator::Allocator(std::shared_ptr<DeviceApi> api, Device device) : api_(std::move(api)), device_(device) {}

Allocator::~Allocator() {
  for (const Lent& lent : lent_) {
    for (const Event& event : lent.events) {
      try {
        event.synchronize();
      } catch (const std::exception&) { continue; }  // what went wrong there is somebody else's to report
    }
    cached_[{nullptr, lent.size}].push_back(lent.memory);
  }
  lent_.clear();
  trim();
}

void Allocator::count(const void* block, std::size_t bytes, Purpose purpose, bool added) {
  for (MemoryCount* counter : {&counters_.by_purpose[static_cast<std::size_t>(purpose)], &counters_.total}) {
    counter->current = added ? counter->current + bytes : counter->current - bytes;
    if (counter->current > counter->peak) counter->peak = counter->current;
  }
  if (watcher_ != nullptr) [[unlikely]] {
    const auto change = static_cast<std::int64_t>(bytes);
    watcher_->changed(block, added ? change : -change, purpose);
  }
}

void Allocator::watch(MemoryWatcher* watcher) {
  const std::lock_guard lock(mutex_);
  watcher_ = watcher;
  if (watcher == nullptr) return;
  for (int i = 0; i < kPurposeCount; ++i) {
    const auto purpose = static_cast<Purpose>(i);
    if (const std::size_t bytes = counters_[purpose].current; bytes > 0)
      watcher->changed(nullptr, static_cast<std::int64_t>(bytes), purpose);
  }
}

void* Allocator::allocate(std::size_t bytes, Purpose purpose, const Stream& stream) {
  if (bytes == 0) return nullptr;
  const std::size_t size = block_size(bytes);
  {
    const std::lock_guard lock(mutex_);
    take_back_lent();
    if (const auto found = cached_.find({stream.native(), size}); found != cached_.end() && !found->second.empty()) {
      void* memory = found->second.back();
      found->second.pop_back();
      count(memory, bytes, purpose, true);
      api_->allow_access(memory, bytes, size, stream.native());
      return memory;
    }
  }
  void* memory = api_->allocate(size);
  if (memory == nullptr) {
    trim();
    memory = api_->allocate(size);
  }
  if (memory == nullptr)
    throw OutOfMemory(concat("out of memory on ", device_, ": ", bytes, " bytes were asked for as ", name_of(purpose),
                             "; ", in_use_by_purpose(report()), api_->free_memory()));
  const std::lock_guard lock(mutex_);
  counters_.reserved += size;
  count(memory, bytes, purpose, true);
  api_->allow_access(memory, bytes, size, stream.native());
  return memory;
}

void Allocator::release(void* memory, std::size_t bytes, Purpose purpose, const Stream& stream,
                        std::span<const StreamUse> others) noexcept {
  if (memory == nullptr) return;
  std::vector<Event> events;
  bool settled = true;
  try {
    for (const StreamUse& other : others) {
      if (stream.is_asynchronous()) stream.wait(other.ended());
      else events.push_back(other.ended());
    }
  } catch (const std::exception&) { settled = false; }  // a device that failed, or a stream that is recorded
  const std::lock_guard lock(mutex_);
  const std::size_t size = block_size(bytes);
  count(memory, bytes, purpose, false);
  if (!settled) {
    unsettled_.emplace_back(memory, size);
    return;
  }
  if (!events.empty()) {
    lent_.push_back({memory, size, std::move(events)});
    return;
  }
  api_->allow_access(memory, 0, size, stream.native());
  cached_[{stream.native(), size}].push_back(memory);
}

// Under the lock.
void Allocator::take_back_lent() {
  std::erase_if(lent_, [this](const Lent& lent) {
    try {
      if (!std::ranges::all_of(lent.events, &Event::has_passed)) return false;
      cached_[{nullptr, lent.size}].push_back(lent.memory);
    } catch (const std::exception&) {  // of the device's failure others tell
      unsettled_.emplace_back(lent.memory, lent.size);
    }
    return true;
  });
}

void Allocator::count_adopted(std::size_t bytes, Purpose purpose) {
  const std::lock_guard lock(mutex_);
  count(nullptr, bytes, purpose, true);
}

void Allocator::forget_adopted(std::size_t bytes, Purpose purpose) {
  const std::lock_guard lock(mutex_);
  count(nullptr, bytes, purpose, false);
}

MemoryReport Allocator::report() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void Allocator::reset_peaks() {
  const std::lock_guard lock(mutex_);
  for (MemoryCount& counter : counters_.by_purpose) counter.peak = counter.current;
  counters_.total.peak = counters_.total.current;
}

void Allocator::trim() {
  const std::lock_guard lock(mutex_);
  take_back_lent();
  const auto give_back = [this](void* block, std::size_t size) {
    api_->release(block);  // waits for the device
    counters_.reserved -= size;
  };
  for (auto& [key, blocks] : cached_) {
    if (held_.contains(key.first)) continue;
    for (void* block : blocks) give_back(block, key.second);
    blocks.clear();
  }
  for (const auto& [block, size] : unsettled_) give_back(block, size);
  unsettled_.clear();
}

void Allocator::hold(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  ++held_[stream.native()];
}

void Allocator::let_go(const Stream& stream) noexcept {
  const std::lock_guard lock(mutex_);
  if (const auto found = held_.find(stream.native()); --found->second == 0) held_.erase(found);
}

}  // namespace keel
