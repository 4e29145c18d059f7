#include "keel/runtime/parallel.h"

#include <algorithm>
#include <exception>
#include <mutex>

#ifdef _OPENMP
#include <omp.h>
#else
#include <thread>
#include <vector>
#endif

namespace keel {
namespace {

thread_local bool inside_parallel = false;

// Runs body(thread) for each thread number below `threads`; the caller is number 0.
template <class Body>
void run_team(int threads, const Body& body) {
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
  body(omp_get_thread_num(), omp_get_num_threads());
#else
  std::vector<std::thread> team;
  for (int t = 1; t < threads; ++t) team.emplace_back([&, t] { body(t, threads); });
  body(0, threads);
  for (std::thread& thread : team) thread.join();
#endif
}

}  // namespace

void parallel_for(const Context& context, std::int64_t n, std::int64_t grain,
                  FunctionRef<void(std::int64_t, std::int64_t)> f) {
  if (n <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  const std::int64_t chunks = (n + grain - 1) / grain;
  const auto run_chunks = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t c = first; c < last; ++c) f(c * grain, std::min(n, (c + 1) * grain));
  };
  const int threads = static_cast<int>(std::min<std::int64_t>(context.threads(), chunks));
  if (threads <= 1 || inside_parallel) return run_chunks(0, chunks);

  std::exception_ptr failure;
  std::mutex failure_mutex;
  run_team(threads, [&](int thread, int team_size) {
    inside_parallel = true;
    try {
      run_chunks(chunks * thread / team_size, chunks * (thread + 1) / team_size);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      failure = std::current_exception();
    }
    inside_parallel = false;
  });
  if (failure) std::rethrow_exception(failure);
}

void run_with_library_threads([[maybe_unused]] const Context& context, FunctionRef<void()> f) {
#ifdef _OPENMP
  struct Restore {
    int threads = omp_get_max_threads();
    ~Restore() { omp_set_num_threads(threads); }
  } restore;
  omp_set_num_threads(inside_parallel ? 1 : context.threads());
#endif
  f();
}

}  // namespace keel
