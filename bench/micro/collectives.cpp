// Collectives among ranks that are threads, in memory that the communicator gives, as gradients are. The ceiling is a
// copy of as many bytes by every rank at once. Ranks that are processes: `keel comm`, and bench_comm beside MPI.

#include <cstring>

#include "bench/micro/micro.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/kernels/elementwise.h"

namespace keel::bench {
namespace {

constexpr CollectiveKind kKinds[] = {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                     CollectiveKind::all_gather};

Contestant call_of(Communicator& comm, CollectiveKind kind, const Tensor& x) {
  const std::int64_t shard = x.numel() / comm.size();
  const Tensor own = x.slice(0, comm.rank() * shard, (comm.rank() + 1) * shard);
  switch (kind) {
    case CollectiveKind::all_reduce: return [&comm, x] { comm.all_reduce(x).wait(); };
    case CollectiveKind::reduce_scatter: return [&comm, x, own] { comm.reduce_scatter(x, own).wait(); };
    default: return [&comm, x, own] { comm.all_gather(own, x).wait(); };
  }
}

Contestant repeated(const Contestant& call, std::int64_t times) {
  return [=] {
    for (std::int64_t i = 0; i < times; ++i) call();
  };
}

void measure(benchmark::State& state, CollectiveKind kind, DType dtype) {
  const auto ranks = static_cast<int>(state.range(0));
  const std::int64_t count = state.range(1) / static_cast<std::int64_t>(size_of(dtype)) / ranks * ranks;
  const std::int64_t bytes = count * static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t batch = std::max<std::int64_t>(1, (std::int64_t{1} << 20) / bytes / 4);  // calls in a row
  run_ranks(ranks, [&](Communicator& comm) {
    const Context context = Context::create({.threads = 1});
    const Tensor x = comm.allocate(context, count, dtype, Purpose::workspace);
    kernels::fill(x, 0);
    Race race(
        {repeated(call_of(comm, kind, x), batch), repeated(copy_of(context, bytes), batch), [&] { comm.barrier(); }});
    if (comm.rank() != 0) {
      for (std::int64_t left = state.max_iterations; left > 0; left -= batch) race.round();
      return;
    }
    while (state.KeepRunningBatch(batch)) state.SetIterationTime(race.round());
    state.counters["of_copy"] = race.median(1) / race.median(0);
  });
  state.SetBytesProcessed(state.iterations() * bytes);
}

}  // namespace

void add_collectives() {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const CollectiveKind kind : kKinds)
      add_benchmark(concat("collective/", name_of(kind), '/', dtype),
                    [=](benchmark::State& state) { measure(state, kind, dtype); })
          ->ArgNames({"ranks", "bytes"})
          ->ArgsProduct({{2, 4}, {1 << 10, 16 << 10, 256 << 10, 1 << 20, 25 << 20}});
}

}  // namespace keel::bench
