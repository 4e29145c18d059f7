#pragma once
// The emulated machine: its devices' memory, streams and events, and what makes queued work happen.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "keel/runtime/emulation/cudart.h"

// Work in the order of its stream; `done` counts operations since the stream was made.
struct CUstream_st {
  struct Operation {
    std::function<bool()> ready = {};  // empty: always
    std::function<void()> run = {};    // empty: only an order
    CUstream_st* needs = nullptr;      // an event wait: `needs` must have done `position`
    std::uint64_t position = 0;
  };
  int device = 0;
  std::deque<Operation> queue;
  std::uint64_t done = 0;
  std::uint64_t enqueued() const { return done + queue.size(); }
};

struct CUevent_st {
  CUstream_st* stream = nullptr;  // null: never recorded, so complete
  std::uint64_t position = 0;
};

namespace keel::emulation {

struct MachineOptions {
  int devices = 0;                           // 0: KEEL_EMULATED_DEVICES, else 1
  std::size_t bytes = std::size_t{2} << 30;  // of each device
  std::uint64_t drain_seed = 0;              // 0: only what a wait needs; else also other work, drawn by this seed
  bool guard_memory = false;                 // host code that touches device memory crashes where it does so
};

// One for the process, as CUDA's runtime is. Every call may come from any thread.
class Machine {
 public:
  static Machine& get();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Forgets everything; no stream, event or memory of before may be used again. For tests.
  void reset(const MachineOptions& options);
  int devices();

  void* allocate(int device, std::size_t bytes);  // null when the device is full
  bool release(void* memory);                     // false: not a pointer of allocate()
  void* allocate_pinned(std::size_t bytes);
  bool release_pinned(void* memory);
  std::size_t bytes_in_use(int device);
  std::size_t bytes_in_all() const { return options_.bytes; }
  int device_of(const void* memory);  // -1: not device memory
  bool is_pinned(const void* memory);

  CUstream_st* create_stream(int device);
  void destroy_stream(CUstream_st* stream);  // after its work
  CUstream_st* default_stream(int device);
  void enqueue(CUstream_st* stream, CUstream_st::Operation operation);
  // Returns when everything that was in the stream (of the device) at the call has happened.
  void wait_for(CUstream_st* stream);
  void wait_for(CUstream_st* stream, std::uint64_t position);
  void wait_for_device(int device);
  std::uint64_t enqueued(const CUstream_st* stream);
  bool is_done(const CUstream_st* stream, std::uint64_t position);
  std::uint64_t waits() const { return waits_; }  // by host threads, so far

  // The first failure of the device's work since the last call, or "".
  std::string take_failure(int device);

 private:
  struct Block {
    int device = 0;
    std::size_t bytes = 0;
  };
  Machine();
  std::byte* new_block(std::size_t bytes) const;
  void free_block(const std::byte* memory, const Block& block) const;
  void drive(std::unique_lock<std::mutex>& lock, CUstream_st* target, std::uint64_t position);
  bool is_ready(const CUstream_st::Operation& operation) const;
  CUstream_st* next_needed(CUstream_st* target) const;
  CUstream_st* next_drawn();
  void perform(CUstream_st* stream);
  void open_memory(bool open);
  const Block* block_of(const std::map<const std::byte*, Block>& blocks, const void* memory) const;

  std::mutex mutex_;
  std::condition_variable enqueued_;
  std::atomic<std::uint64_t> waits_ = 0;
  MachineOptions options_;
  std::uint64_t draw_ = 0;
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  std::vector<CUstream_st*> default_streams_;
  std::vector<std::string> failures_;
  std::vector<std::size_t> in_use_;
  std::map<const std::byte*, Block> device_blocks_, pinned_blocks_;
};

}  // namespace keel::emulation
