#pragma once
// Runs a kernel's grid on the host: blocks one after the other, the threads of a block as fibres.
//
// A thread runs until it waits at a barrier or for its warp; then the next one runs, in an order that may be chosen.
// So a program with a missing barrier gives other results in another order, and always the same ones in the same
// order. What a GPU would hang on or silently get wrong is an Error that names kernel, block and thread: a barrier
// that not all threads reach, a shuffle without one of its lanes, an access past a shared array, and two threads that
// touch one shared element, one of them writing, with no barrier between.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>

#include "keel/runtime/function_ref.h"

namespace keel::emulation {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

struct Extent3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr Extent3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}  // NOLINT: as CUDA's dim3
  constexpr std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

enum class Order : unsigned char { forward, reverse, shuffled };

struct Grid;

// What a tool wants to know of grids; must outlive the launches that are asked for while it is set.
struct Probe {
  std::function<void(const Grid&)> on_grid = {};  // called before each one
  // Where keel_stop_here() is called: before this thread of this block of this kernel begins.
  std::string kernel = {};
  Index3 block = {}, thread = {};
};
// "NAME", "NAME BLOCK" or "NAME BLOCK THREAD", these as x, "x,y" or "x,y,z". Throws an Error for anything else.
Probe probe_of(const std::string& text);

// How a grid runs. A launch uses the grid_options() of the thread that makes it. They begin as the environment asks:
// KEEL_EMULATED_ORDER (forward, reverse, or a number: shuffled by that seed), and KEEL_EMULATED_STOP, a probe as above.
struct GridOptions {
  Order blocks = Order::forward;
  Order threads = Order::forward;
  std::uint64_t seed = 1;   // of shuffled orders
  bool check_races = true;  // of shared memory
  const Probe* probe = nullptr;
};
GridOptions& grid_options();

struct Grid {
  const char* kernel = "";  // for messages
  Extent3 grid, block;
  std::size_t dynamic_shared_bytes = 0;
  const void* code = nullptr;  // of the kernel, for debuggers
};

// Throws Error for a shape that no device accepts.
void check_shape(const Grid& grid);
// Calls body() once for each thread of the grid. Throws check_shape()'s Error, or what a thread did.
void run_grid(const Grid& grid, const GridOptions& options, FunctionRef<void()> body);

// Where the running thread is. Only a kernel may read them.
struct ThreadPlace {
  Index3 thread, block;
  Extent3 block_extent, grid_extent;
};
extern constinit thread_local ThreadPlace here;

// Waits until each thread of the block has come to this call.
void block_barrier(const std::source_location& where);

// Something that the lanes of `mask` do together. Each lane gives its record; the lane that comes last calls
// act(records), indexed by lane, null for lanes outside the mask, before any goes on. `orders_memory`: what lanes did
// to shared memory before comes before what they do to it after.
void warp_collective(unsigned mask, void* record, void (*act)(void* const records[32]),
                     const std::source_location& where, bool orders_memory);

// The place of the running thread in its warp of 32.
unsigned lane();

[[noreturn]] void fail_thread(const std::string& what, const std::source_location& where);

}  // namespace keel::emulation

// For a breakpoint: does nothing. `code` is the function that runs next.
extern "C" void keel_stop_here(const void* code, const char* kernel);
