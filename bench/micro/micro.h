#pragma once
// What the micro-benchmarks share: options, inputs, and the ceilings that their counters compare them with.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "bench/measure.h"
#include "keel/runtime/tensor.h"

namespace keel::bench {

// What Google Benchmark's own options do not say.
struct Options {
  int threads;
  std::int64_t bytes;  // read and written by a kernel past the cache, about
};

// Each adds a family of benchmarks: NAME/...
void add_elementwise(const Options& options);
void add_rows(const Options& options);
void add_updates(const Options& options);
void add_codecs(const Options& options);
void add_matmul(const Options& options);
void add_collectives();
void add_allocator();

// Adds a benchmark whose function sets the time of each iteration, since contestants take turns with it.
template <class F>
benchmark::internal::Benchmark* add_benchmark(const std::string& name, const F& measure) {
  return benchmark::RegisterBenchmark(name.c_str(), measure)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

// Uniform in [low, high) and made quickly: multiples of the golden ratio modulo 1, in an order that depends on `seed`.
Tensor numbers(const Context& context, const Dims& shape, DType dtype, std::uint32_t seed = 1, double low = -1,
               double high = 1);

// The ceiling of kernels that the memory limits: memcpy of `bytes` by the threads of the context.
Contestant copy_of(const Context& context, std::int64_t bytes);

// The ceiling of products: multiply-adds with operands in registers, by the threads of the context.
struct Burn {
  Contestant run;
  double multiply_adds;  // of one run
};
Burn burn_of(const Context& context, DType dtype);

// Called for each iteration in turn: the first contestant's time is the benchmark's.
inline void take_turns(benchmark::State& state, Race& race) {
  for (auto _ : state) state.SetIterationTime(race.round());
}

// A kernel that the memory should limit, for tensors of (rows, width).
struct MemoryKernel {
  struct Prepared {
    Contestant run;
    Contestant restore = nullptr;  // undoes what a run has changed; not timed
  };

  std::string name;
  double bytes;  // that it must read and write once for each element
  std::function<Prepared(const Context&, std::int64_t rows)> prepare;
  std::int64_t width = 1024;
};
// NAME/cache: about 2^14 elements in one thread. NAME/memory: options.bytes in all threads, in turn with a copy.
void add_memory_kernel(const Options& options, const MemoryKernel& kernel);

}  // namespace keel::bench
