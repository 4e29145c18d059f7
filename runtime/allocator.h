#pragma once
// The memory of one device: cached blocks, and counters that say what the memory is for.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "keel/runtime/device.h"
#include "keel/runtime/stream.h"

namespace keel {

class DeviceApi;

// What a storage is for, so that memory claims are counted, not estimated.
enum class Purpose : unsigned char { parameter, gradient, optimizer, activation, bucket, workspace, checkpoint };
inline constexpr int kPurposeCount = 7;
std::string_view name_of(Purpose purpose);

struct MemoryCount {
  std::size_t current = 0;  // bytes
  std::size_t peak = 0;     // bytes, since creation or reset_peaks()
};

struct MemoryReport {
  std::array<MemoryCount, kPurposeCount> by_purpose;
  MemoryCount total;         // requested bytes of all purposes; its peak is the peak of the sum
  std::size_t reserved = 0;  // bytes held from the system, including cached blocks
  const MemoryCount& operator[](Purpose purpose) const { return by_purpose[static_cast<std::size_t>(purpose)]; }
};

// Is told of each change of what an allocator counts, under its lock: it may not call the allocator.
class MemoryWatcher {
 public:
  virtual ~MemoryWatcher() = default;
  // `block`: where it begins, as release() will name it; null for memory of others. `bytes`: negative where they are
  // given back.
  virtual void changed(const void* block, std::int64_t bytes, Purpose purpose) noexcept = 0;
};

// A thread-safe caching allocator: a training step asks for the same sizes again and again, so
// released blocks are kept by size and handed out without asking the system (and without new
// page faults). Blocks lie at multiples of 64 bytes; of the processor, from 64 KiB on of 4 KiB, from 2 MiB on of 2 MiB.
//
// A block belongs to a stream. Whoever gets it next asks for it in the same stream, so its work comes after that of
// the block's last user, and nobody waits.
class Allocator {
 public:
  Allocator();  // of the processor
  Allocator(std::shared_ptr<DeviceApi> api, Device device);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // `bytes` uninitialised bytes for work of `stream`; a null pointer for 0. Throws OutOfMemory when there is none.
  void* allocate(std::size_t bytes, Purpose purpose, const Stream& stream = {});
  // `stream` is that of allocate(). `others`: further streams that may still work on the memory, up to the end of the
  // use or, where that is not known, of what they hold now.
  void release(void* memory, std::size_t bytes, Purpose purpose, const Stream& stream = {},
               std::span<const StreamUse> others = {}) noexcept;

  // Counts memory that somebody else owns under its purpose: it is in the whole report but `reserved`.
  void count_adopted(std::size_t bytes, Purpose purpose);
  void forget_adopted(std::size_t bytes, Purpose purpose);

  MemoryReport report() const;
  // From now on tells `watcher`, first what each purpose has now; null: nobody any more.
  void watch(MemoryWatcher* watcher);
  void reset_peaks();
  // Gives every cached block that no device still works on back to the system.
  void trim();
  // Between these two calls trim() keeps the blocks of this stream: a graph writes to them whenever it is launched.
  void hold(const Stream& stream);
  void let_go(const Stream& stream) noexcept;

 private:
  using Key = std::pair<void*, std::size_t>;  // stream, block size
  struct KeyHash {
    std::size_t operator()(const Key& key) const { return reinterpret_cast<std::size_t>(key.first) ^ key.second; }
  };
  // A block of the host that a device may still read or write.
  struct Lent {
    void* memory;
    std::size_t size;
    std::vector<Event> events;
  };
  void count(const void* block, std::size_t bytes, Purpose purpose, bool added);
  void take_back_lent();

  std::shared_ptr<DeviceApi> api_;
  Device device_;
  mutable std::mutex mutex_;
  std::unordered_map<Key, std::vector<void*>, KeyHash> cached_;
  std::vector<Lent> lent_;
  std::vector<std::pair<void*, std::size_t>> unsettled_;  // no event could be recorded for their users
  std::unordered_map<void*, int> held_;                   // by stream: how often
  MemoryReport counters_;
  MemoryWatcher* watcher_ = nullptr;
};

}  // namespace keel
