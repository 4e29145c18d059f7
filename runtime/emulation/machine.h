#pragma once
// The emulated machine: its devices' memory, streams and events, and what makes queued work happen.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "keel/runtime/emulation/cudart.h"

namespace keel::emulation {

// What an operation waits for beside its stream and events: other ranks, for one. Called under the machine's lock, for
// the first operation of a stream only.
class Gate {
 public:
  virtual ~Gate() = default;
  virtual bool is_open() const = 0;
  virtual std::vector<CUstream_st*> blockers() const = 0;  // streams whose work brings it nearer to opening
  virtual std::string describe() const = 0;                // "X waits for Y", for the report of a deadlock
};

struct Capture;

}  // namespace keel::emulation

// Work in the order of its stream; `done` counts operations since the stream was made.
struct CUstream_st {
  struct Operation {
    std::function<void()> run = {};  // empty: only an order
    CUstream_st* needs = nullptr;    // an event wait: `needs` must have done `position`
    std::uint64_t position = 0;
    std::shared_ptr<keel::emulation::Gate> gate = {};
  };
  int device = 0;
  std::deque<Operation> queue;
  std::uint64_t done = 0;
  unsigned questions = 0;  // queries in a row that found work to be done
  std::shared_ptr<keel::emulation::Capture> capture = {};
  std::vector<std::size_t> tips = {};  // the captured operations that the next one comes after
  std::uint64_t enqueued() const { return done + queue.size(); }
};

struct CUevent_st {
  int device = 0;
  bool timed = false;
  std::shared_ptr<std::chrono::steady_clock::time_point> time = {};  // of a timed one: when it happened
  CUstream_st* stream = nullptr;                                     // null: never recorded, so complete
  std::uint64_t position = 0;
  std::shared_ptr<keel::emulation::Capture> capture = {};  // when recorded in one
  std::vector<std::size_t> tips = {};
};

namespace keel::emulation {

// Where an operation stands in its stream. For holders of the machine's lock.
struct Place {
  CUstream_st* stream = nullptr;  // null: not there yet
  std::uint64_t position = 0;
  bool is_reached() const { return stream != nullptr && stream->done >= position; }
};

struct MachineOptions {
  int devices = 0;                           // 0: KEEL_EMULATED_DEVICES, else 1
  std::size_t bytes = std::size_t{2} << 30;  // of each device
  std::uint64_t drain_seed = 0;              // 0: only what a wait needs; else also other work, drawn by this seed
  bool guard_memory = false;                 // host code that touches device memory crashes where it does so
  // How often an NCCL communicator that does not block is asked until a call is over; 0 with a seed: drawn.
  unsigned nccl_questions = 0;
  bool nccl_tells_aborts = true;  // to the other ranks of the communicator, whom NCCL does not tell between GPUs
  int nccl_version = 22809;       // 2.28.9, whose interface this is
  // How long a wait may see nothing happen before the operation that holds it up is given up as a deadlock. Other
  // threads may be computing meanwhile.
  std::chrono::milliseconds patience = std::chrono::seconds(60);
};

// What the environment asks for: KEEL_EMULATED_DRAIN (a seed), KEEL_EMULATED_GUARD (0 or 1). reset() reads
// KEEL_EMULATED_DEVICES (1 to 64). An Error names the one that is no such number.
MachineOptions options_of_environment();

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
  const MachineOptions& options() const { return options_; }
  unsigned draw_nccl_questions();
  int device_of(const void* memory);  // -1: not device memory
  bool is_pinned(const void* memory);
  std::size_t bytes_behind(const void* memory);  // to the end of its block of device or pinned memory; else 0

  CUstream_st* create_stream(int device);
  void destroy_stream(CUstream_st* stream);  // after its work
  CUstream_st* default_stream(int device);
  cudaError_t enqueue(CUstream_st* stream, CUstream_st::Operation operation, Place* place = nullptr);
  // Returns when all that was in the stream, or in the device's streams, at the call has run.
  void wait_for(CUstream_st* stream);
  void wait_for(CUstream_st* stream, std::uint64_t position);
  void wait_for_device(int device);
  std::uint64_t enqueued(const CUstream_st* stream);
  // The first calls only look. A caller that asks again and again makes the work run, as a loop around a query expects.
  bool is_done(CUstream_st* stream, std::uint64_t position);
  void wake();                                    // a gate may have opened
  std::uint64_t waits() const { return waits_; }  // by host threads, so far

  // From now on the device answers cudaErrorIllegalAddress, as a GPU does after a kernel that reads where it may not:
  // for the process it is lost. What is queued there still happens, so that nothing waits for ever.
  void lose(int device);
  bool is_lost(int device);

  // Failures of device work are numbered from 1. The first one of the device with a number above *seen, or "";
  // *seen becomes the number of the newest.
  std::string failure_after(int device, std::uint64_t* seen);
  std::uint64_t failures();

  // Stream capture, in graph.cpp, as enqueue() is.
  cudaError_t begin_capture(CUstream_st* stream, cudaStreamCaptureMode mode);
  cudaError_t end_capture(CUstream_st* stream, CUgraph_st** graph);
  cudaStreamCaptureStatus capture_status(const CUstream_st* stream);
  // True when the stream is being captured, which this call then spoils.
  bool spoils_capture_of(CUstream_st* stream);
  // Likewise for calls that disturb captures of other streams, in a thread that looks at them in this mode.
  bool spoils_captures(cudaStreamCaptureMode of_thread);
  cudaError_t record(CUevent_st* event, CUstream_st* stream);
  cudaError_t wait_event(CUstream_st* stream, const CUevent_st* event);
  cudaError_t launch_graph(std::shared_ptr<const CUgraph_st> graph, CUstream_st* stream);

 private:
  struct Block {
    int device = 0;
    std::size_t bytes = 0;
  };
  Machine();
  std::byte* new_block(std::size_t bytes) const;
  void free_block(const std::byte* memory, const Block& block) const;
  void drive(std::unique_lock<std::mutex>& lock, CUstream_st* target, std::uint64_t position);
  bool step_towards(CUstream_st* target);
  void give_up(CUstream_st* target);
  bool is_ready(const CUstream_st::Operation& operation) const;
  CUstream_st* next_needed(CUstream_st* target, std::vector<CUstream_st*>& seen) const;
  CUstream_st* next_drawn();
  std::uint64_t draw();
  void perform(CUstream_st* stream);
  void note_failure(int device, std::string what);
  void open_memory(bool open);
  const Block* block_of(const std::map<const std::byte*, Block>& blocks, const void* memory) const;

  std::mutex mutex_;
  std::condition_variable happened_;
  std::uint64_t happenings_ = 0;  // operations enqueued or done, and calls of wake()
  std::atomic<std::uint64_t> waits_ = 0;
  MachineOptions options_;
  std::uint64_t draw_ = 0;
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  std::vector<CUstream_st*> default_streams_;
  struct Failure {
    std::uint64_t number = 0;
    int device = 0;
    std::string what;
  };
  std::deque<Failure> failures_;  // the newest ones
  std::uint64_t failure_count_ = 0;
  std::vector<std::shared_ptr<Capture>> captures_;
  std::vector<std::size_t> in_use_;
  std::set<int> lost_;
  std::map<const std::byte*, Block> device_blocks_, pinned_blocks_;
};

}  // namespace keel::emulation
