#include <cstring>

#include "bench/micro/micro.h"
#include "keel/runtime/parallel.h"

namespace keel::bench {
namespace {

constexpr std::int64_t kCachedElements = 1 << 14;

void measure(benchmark::State& state, const MemoryKernel& kernel, int threads, std::int64_t elements,
             bool beside_copy) {
  const Context context = Context::create({.threads = threads});
  const std::int64_t rows = std::max<std::int64_t>(1, elements / kernel.width);
  elements = rows * kernel.width;
  const double bytes = kernel.bytes * static_cast<double>(elements);
  const MemoryKernel::Prepared prepared = kernel.prepare(context, rows);
  std::vector<Contestant> contestants = {prepared.run};
  if (prepared.restore) contestants.push_back(prepared.restore);
  if (beside_copy) contestants.push_back(copy_of(context, static_cast<std::int64_t>(bytes / 2)));
  Race race(contestants);
  take_turns(state, race);
  using benchmark::Counter;
  state.counters["time_per_element"] =
      Counter(static_cast<double>(elements), Counter::kIsIterationInvariantRate | Counter::kInvert);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
  if (!beside_copy) return;
  const double copying = race.median(contestants.size() - 1);
  state.counters["copy_bytes_per_second"] = Counter(bytes / copying, Counter::kDefaults, Counter::kIs1024);
  state.counters["of_copy"] = copying / race.median(0);
}

}  // namespace

Tensor numbers(const Context& context, const Dims& shape, DType dtype, std::uint32_t seed, double low, double high) {
  const Tensor x = empty(context, shape, dtype);
  visit_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const to = x.data<T>();
    parallel_for(context, x.numel(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::uint32_t multiple = (static_cast<std::uint32_t>(i) + (seed << 24)) * 0x9e3779b9u;
        to[i] = T(static_cast<float>(low + (high - low) * 0x1p-32 * multiple));
      }
    });
  });
  return x;
}

Contestant copy_of(const Context& context, std::int64_t bytes) {
  const Tensor from = zeros(context, {bytes}, DType::u8), to = zeros(context, {bytes}, DType::u8);
  return [=] {
    const std::int64_t grain = (bytes + context.threads() - 1) / context.threads();
    parallel_for(context, bytes, grain, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to.raw() + begin, from.raw() + begin, static_cast<std::size_t>(end - begin));
    });
  };
}

void add_memory_kernel(const Options& options, const MemoryKernel& kernel) {
  add_benchmark(kernel.name + "/cache",
                [=](benchmark::State& state) { measure(state, kernel, 1, kCachedElements, false); });
  const auto elements = static_cast<std::int64_t>(static_cast<double>(options.bytes) / kernel.bytes);
  add_benchmark(kernel.name + "/memory",
                [=](benchmark::State& state) { measure(state, kernel, options.threads, elements, true); });
}

}  // namespace keel::bench
