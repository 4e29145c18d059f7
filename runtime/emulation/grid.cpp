#include "keel/runtime/emulation/grid.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <vector>

#include "keel/runtime/emulation/block.h"
#include "keel/runtime/emulation/shared.h"
#include "keel/runtime/emulation/tensor_core.h"
#include "keel/runtime/error.h"
#include "keel/runtime/random.h"

namespace keel::emulation {
namespace {

thread_local Block* running = nullptr;

}  // namespace

constinit thread_local ThreadPlace here;

void check_shape(const Grid& grid) {
  const auto refuse = [&](const std::string& why) {
    throw Error(concat("launch of ", grid.kernel, ": ", why), ErrorKind::internal);
  };
  const Extent3 &b = grid.block, &g = grid.grid;
  if (b.count() == 0 || g.count() == 0) refuse("an empty grid or block");
  if (b.count() > 1024 || b.z > 64) refuse(concat("a block of ", b.x, " x ", b.y, " x ", b.z, " threads"));
  if (g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535)
    refuse(concat("a grid of ", g.x, " x ", g.y, " x ", g.z, " blocks"));
  if (grid.dynamic_shared_bytes > kDynamicSharedLimit)
    refuse(
        concat(grid.dynamic_shared_bytes, " bytes of dynamic shared memory; a block may have ", kDynamicSharedLimit));
}

namespace {

Index3 parse_place(const std::string& text) {
  Index3 place;
  unsigned* const parts[] = {&place.x, &place.y, &place.z};
  const char* from = text.data();
  const char* const end = from + text.size();
  for (std::size_t i = 0; i < 3; ++i) {
    const auto [rest, error] = std::from_chars(from, end, *parts[i]);
    if (error != std::errc()) break;
    if (rest == end) return place;
    if (*rest != ',') break;
    from = rest + 1;
  }
  throw Error(concat("'", text, "' is no place in a grid; write x, x,y or x,y,z"));
}

GridOptions grid_options_of_environment() {
  GridOptions options;
  if (const char* order = std::getenv("KEEL_EMULATED_ORDER"); order != nullptr && *order != 0) {
    const std::string text = order;
    const auto [rest, error] = std::from_chars(order, order + text.size(), options.seed);
    if (text == "reverse") options.blocks = options.threads = Order::reverse;
    else if (error == std::errc() && *rest == 0) options.blocks = options.threads = Order::shuffled;
    else if (text != "forward")
      throw Error(concat("KEEL_EMULATED_ORDER is '", text, "'; it must be forward, reverse or a number"));
  }
  if (const char* stop = std::getenv("KEEL_EMULATED_STOP")) {
    static const Probe probe = probe_of(stop);
    options.probe = &probe;
  }
  return options;
}

}  // namespace

Probe probe_of(const std::string& text) {
  std::istringstream words(text);
  Probe probe;
  std::string block, thread, more;
  words >> probe.kernel >> block >> thread >> more;
  if (probe.kernel.empty() || !more.empty()) throw Error(concat("'", text, "' is not NAME [BLOCK [THREAD]]"));
  if (!block.empty()) probe.block = parse_place(block);
  if (!thread.empty()) probe.thread = parse_place(thread);
  return probe;
}

GridOptions& grid_options() {
  thread_local GridOptions options = grid_options_of_environment();
  return options;
}

std::vector<std::uint32_t> ordering(std::uint64_t count, Order order, std::uint64_t seed) {
  std::vector<std::uint32_t> places(count);
  std::iota(places.begin(), places.end(), 0u);
  if (order == Order::reverse) std::reverse(places.begin(), places.end());
  if (order == Order::shuffled)  // Fisher and Yates
    for (std::uint64_t i = count; i > 1; --i) {
      seed = mix64(seed);
      std::swap(places[i - 1], places[seed % i]);
    }
  return places;
}

void run_grid(const Grid& grid, const GridOptions& options, FunctionRef<void()> body) {
  check_shape(grid);
  if (running != nullptr) throw Error(concat("launch of ", grid.kernel, " from inside a kernel"), ErrorKind::internal);
  thread_local Block block;
  struct Leave {
    ~Leave() { running = nullptr; }
  } leave;
  running = &block;
  if (options.probe != nullptr && options.probe->on_grid) options.probe->on_grid(grid);
  here.block_extent = grid.block;
  here.grid_extent = grid.grid;
  const std::vector<std::uint32_t> threads = ordering(grid.block.count(), options.threads, options.seed);
  for (const std::uint32_t b : ordering(grid.grid.count(), options.blocks, options.seed + 1)) {
    here.block = {b % grid.grid.x, b / grid.grid.x % grid.grid.y, b / grid.grid.x / grid.grid.y};
    block.run(grid, threads, options, body);
  }
}

unsigned lane() { return running->thread() % 32; }

void block_barrier(const std::source_location& where) { running->wait_for_block(where); }

void warp_collective(unsigned mask, void* record, void (*act)(void* const records[32]),
                     const std::source_location& where, bool orders_memory) {
  running->wait_for_warp(mask, record, act, where, orders_memory);
}

std::byte* shared_array(const void* key, std::size_t bytes) { return running->shared_array(key, bytes); }

std::size_t dynamic_shared_bytes() { return running->dynamic_shared_bytes(); }

void touch_shared(const std::byte* address, std::size_t bytes, bool write, const std::source_location& where) {
  running->touch(address, bytes, write, where);
}

void check_shared(const std::byte* address, std::size_t bytes, std::size_t alignment,
                  const std::source_location& where) {
  running->check_shared(address, bytes, alignment, where);
}

void start_copy(std::byte* to, const std::byte* from, int bytes, const std::source_location& where) {
  running->start_copy(to, from, static_cast<std::size_t>(bytes), where);
}

void commit_copies() { running->commit_copies(); }

void finish_copies(unsigned groups) { running->finish_copies(groups); }

void fail_thread(const std::string& what, const std::source_location& where) { running->fail(what, where); }

}  // namespace keel::emulation

__attribute__((noinline)) void keel_stop_here(const void* code, const char* kernel) {
  asm volatile("" : : "r"(code), "r"(kernel) : "memory");  // keeps the call and its arguments
}
