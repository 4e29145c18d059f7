#include "bench/micro/micro.h"
#include "keel/runtime/memory_log.h"

namespace keel::bench {
namespace {

constexpr int kPairs = 1000;
constexpr std::size_t kBlock = 4096;

// Allocations and releases of a block that the allocator has kept.
void take_and_give_back(Allocator& allocator) {
  for (int i = 0; i < kPairs; ++i) {
    void* const block = allocator.allocate(kBlock, Purpose::activation);
    benchmark::DoNotOptimize(block);
    allocator.release(block, kBlock, Purpose::activation);
  }
}

void measure(benchmark::State& state) {
  Allocator allocator, watched;
  MemoryLog log(0, 2 * kPairs + 1);
  Race race({[&] { take_and_give_back(allocator); },
             [&] {
               log.begin(watched);
               take_and_give_back(watched);
               log.end();
             }});
  take_turns(state, race);
  using benchmark::Counter;
  state.counters["time_per_pair"] = Counter(kPairs, Counter::kIsIterationInvariantRate | Counter::kInvert);
  state.counters["of_watched"] = race.median(1) / race.median(0);
}

}  // namespace

void add_allocator() { add_benchmark("allocator/kept_block", measure); }

}  // namespace keel::bench
