#pragma once
// One block of an emulated grid: its fibres, who waits for whom, and its shared memory.

#include <cstdint>
#include <exception>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "keel/runtime/emulation/fibre.h"
#include "keel/runtime/emulation/grid.h"
#include "keel/runtime/emulation/shared_memory.h"

namespace keel::emulation {

class Block {
 public:
  // `threads`: the numbers of the block's threads in the order in which they run.
  void run(const Grid& grid, const std::vector<std::uint32_t>& threads, const GridOptions& options,
           FunctionRef<void()> body);

  // For the running thread only.
  std::uint32_t thread() const { return worker_->thread; }
  void wait_for_block(const std::source_location& where);
  void wait_for_warp(unsigned mask, void* record, void (*act)(void* const records[32]),
                     const std::source_location& where, bool orders_memory);
  void touch(const std::byte* address, std::size_t bytes, bool write, const std::source_location& where);
  void check_shared(const std::byte* address, std::size_t bytes, std::size_t alignment,
                    const std::source_location& where) const;
  void start_copy(std::byte* to, const std::byte* from, std::size_t bytes, const std::source_location& where);
  void commit_copies() { ++worker_->groups; }
  void finish_copies(std::uint32_t groups);
  [[noreturn]] void fail(const std::string& what, const std::source_location& where) const;

  std::byte* shared_array(const void* key, std::size_t bytes);
  std::size_t dynamic_shared_bytes() const { return shared_.dynamic_bytes(); }

 private:
  enum class Wait : unsigned char { none, block, warp };
  // A copy into shared memory that has not arrived yet.
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;  // of 16; the rest is zero
    std::uint32_t group;
    std::source_location where;
  };
  // A fibre runs threads back to back, as long as none of them has to wait.
  struct Worker {
    Block* block = nullptr;
    Fibre fibre;
    std::uint32_t thread = 0;
    Wait wait = Wait::none;
    std::source_location where;
    std::vector<Copy> copies;  // of the thread, oldest first
    std::uint32_t groups = 0;  // that the thread has closed
  };
  // An operation that lanes of a warp do together, and that some of them have not reached yet.
  struct Meeting {
    std::uint32_t warp = 0;
    unsigned mask = 0, arrived = 0;
    void* records[32] = {};
    Worker* workers[32] = {};
    std::source_location where;
  };

  static void work(void* worker);
  void run_threads(Worker& worker);
  void resume(Worker& worker);
  void park(Wait wait, const std::source_location& where);
  void open_barrier();
  [[noreturn]] void fail_stuck() const;
  std::string name_of_thread(std::uint32_t thread) const;
  std::string here_is(std::uint32_t thread) const;

  const Grid* grid_ = nullptr;
  const FunctionRef<void()>* body_ = nullptr;
  const std::vector<std::uint32_t>* order_ = nullptr;
  std::uint32_t stop_ = 0;  // the thread that a debugger waits for
  std::size_t next_ = 0;    // in order_: threads that have begun
  std::vector<std::unique_ptr<Worker>> workers_;
  std::size_t busy_ = 0;  // workers of this block
  Worker* worker_ = nullptr;
  std::vector<Meeting> meetings_;
  std::uint32_t block_epoch_ = 1;
  std::vector<std::uint32_t> warp_epochs_;
  SharedMemory shared_;
  std::exception_ptr failure_;
};

}  // namespace keel::emulation
