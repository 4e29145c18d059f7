#include "keel/runtime/parallel.h"

#include <algorithm>

#include "keel/runtime/thread_team.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace keel {
namespace {

thread_local bool inside_parallel = false;

struct Inside {
  Inside() { inside_parallel = true; }
  ~Inside() { inside_parallel = false; }
};

}  // namespace

void parallel_for(const Context& context, std::int64_t n, std::int64_t grain,
                  FunctionRef<void(std::int64_t, std::int64_t)> f) {
  if (n <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  const std::int64_t chunks = (n + grain - 1) / grain;
  const auto run_chunk = [&](std::int64_t c) { f(c * grain, std::min(n, (c + 1) * grain)); };
  const int threads = static_cast<int>(std::min<std::int64_t>(available_threads(context), chunks));
  if (threads > 1) {
    const auto run_inside = [&](std::int64_t c) {
      const Inside inside;
      run_chunk(c);
    };
    if (context.resource<ThreadTeam>().try_run(threads, chunks, run_inside)) return;
  }
  for (std::int64_t c = 0; c < chunks; ++c) run_chunk(c);
}

int available_threads(const Context& context) { return inside_parallel ? 1 : context.threads(); }

void run_with_library_threads([[maybe_unused]] int threads, FunctionRef<void()> f) {
#ifdef _OPENMP
  struct Restore {
    int before = omp_get_max_threads();
    ~Restore() { omp_set_num_threads(before); }
  } restore;
  omp_set_num_threads(threads);
#endif
  f();
}

}  // namespace keel
