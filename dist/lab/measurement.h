#pragma once
// Times of a collective, over calls and over ranks.

#include <functional>
#include <optional>

#include "keel/dist/lab/exercise.h"

namespace keel::lab {

struct MeasureOptions {
  int calls = 0;           // that are timed; 0: as many as fit into `seconds`, between 20 and 1000
  int warmup = 5;          // calls before them, at least
  double seconds = 0.1;    // and at least a tenth of this long before them
  bool check = true;       // the result, of a call of its own
  std::uint32_t salt = 0;  // of the numbers that are checked
  // What a rank does before each call, and what makes it late: nothing, but for tests and demonstrations.
  std::function<void()> before_call = {};
  bool barrier = false;  // between calls, not timed
  // Measures what a rank can compute while a call is under way, with so many polls meanwhile; nothing: does not.
  std::optional<int> polls = {};
};

// How much of a call's own time a rank had for computing: 1 where call and computing together took no longer than
// computing alone, 0 where they took as long as one after the other (as the non-blocking tests of the OSU
// Micro-Benchmarks).
double overlap_of(double call_us, double computing_us, double together_us);

// Times over all ranks. A call's time is from when a rank asks until it has the result; the next call follows at once.
// Of several calls that begin together it is the time of all, divided by their number.
struct Timing {
  std::int64_t calls = 0;
  double time_us = 0, min_us = 0, max_us = 0;  // a rank's mean call: mean over ranks, fastest rank, slowest rank
  double p25_us = 0, p50_us = 0, p75_us = 0, p95_us = 0;  // of calls, each as its slowest rank saw it
  double algbw = 0, busbw = 0;                            // 10^9 bytes a second, from time_us
  std::optional<std::int64_t> wrong = {};                 // elements, on all ranks; none: not checked
  double skew_us = 0;                                     // from the first rank's asking to the last's, median
  std::int64_t straggler = -1;                            // who asked last most often; -1: a rank alone
  double straggler_share = 0;                             // of the calls
  double first_us = 0;                                    // of the very first call, slowest rank
  // With MeasureOptions::polls, means over ranks: of computing that takes about as long as a call, of a call under
  // which a rank computes that, and the overlap_of() them in percent.
  std::optional<double> computing_us = {}, together_us = {}, overlap = {};
};

// Bytes of one call by the communicator's own count: `inside` and `between` nodes what the rank that sends most sends,
// `total` what all ranks send.
struct Wire {
  std::int64_t inside = 0, between = 0, total = 0;
};

// Microseconds by which each rank's clock is ahead of rank 0's; zero on the same host. Every rank calls it; blocks.
std::vector<double> clock_offsets(Communicator& ranks);

// Every rank calls it. `ranks` is not measured: it carries what ranks tell each other between calls, and lets all begin
// together. Only rank 0's result is complete. The tensors of the call are overwritten.
// `calls`, which are alike and have tensors of their own, begin together.
Timing measure(Communicator& measured, Communicator& ranks, std::span<const Call> calls, const MeasureOptions& options,
               const std::vector<double>& clocks);
inline Timing measure(Communicator& measured, Communicator& ranks, const Call& call, const MeasureOptions& options,
                      const std::vector<double>& clocks) {
  return measure(measured, ranks, {&call, 1}, options, clocks);
}
// Every rank calls it. For a library that does not say what it sends, all counts are 0.
Wire count_wire(Communicator& measured, Communicator& ranks, const Call& call);

}  // namespace keel::lab
