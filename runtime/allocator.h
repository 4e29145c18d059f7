#pragma once
// The memory of one device: cached blocks, and counters that say what the memory is for.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace keel {

// What a storage is for, so that memory claims are counted, not estimated.
enum class Purpose : unsigned char { parameter, gradient, optimizer, activation, bucket, workspace };
inline constexpr int kPurposeCount = 6;
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

// A thread-safe caching allocator: a training step asks for the same sizes again and again, so
// released blocks are kept by size and handed out without asking the system (and without new
// page faults). Blocks are aligned to 64 bytes, large ones to 2 MiB pages.
class Allocator {
 public:
  Allocator() = default;
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // `bytes` uninitialised bytes; a null pointer for 0. Throws Error when memory is exhausted.
  void* allocate(std::size_t bytes, Purpose purpose);
  void release(void* memory, std::size_t bytes, Purpose purpose) noexcept;

  MemoryReport report() const;
  void reset_peaks();
  // Gives every cached block back to the system.
  void trim();

 private:
  void count(std::size_t bytes, Purpose purpose, bool added);

  mutable std::mutex mutex_;
  std::unordered_map<std::size_t, std::vector<void*>> cached_;  // block size -> free blocks
  MemoryReport counters_;
};

}  // namespace keel
