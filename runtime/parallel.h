#pragma once
// The one way to use several threads: ranges cut by grain, never by the number of threads.

#include <cstdint>

#include "keel/runtime/context.h"
#include "keel/runtime/function_ref.h"

namespace keel {

// Calls f(begin, end) for the chunks [0, grain), [grain, 2 grain), ... of [0, n), on up to
// context.threads() threads. The chunks depend on n and grain alone, so a function that is
// deterministic by chunk gives the same bits at any thread count. An exception of any chunk is
// rethrown here. Called inside itself, it runs the chunks in the calling thread. Two chunks are enough
// to wake another thread, which takes some microseconds: a chunk should last 10 microseconds or more.
void parallel_for(const Context& context, std::int64_t n, std::int64_t grain,
                  FunctionRef<void(std::int64_t begin, std::int64_t end)> f);

// Threads that a parallel_for called here would use: one inside another parallel_for.
int available_threads(const Context& context);

// Calls f in this thread while a library that f uses may start OpenMP teams of its own, of `threads` threads.
void run_with_library_threads(int threads, FunctionRef<void()> f);

// Elements of a simple loop that are worth a thread of their own (about 10 microseconds of work).
inline constexpr std::int64_t kElementGrain = 16384;

}  // namespace keel
