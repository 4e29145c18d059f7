#pragma once
// What a rank does when: spans of computing, of collectives under way, and of waiting for them.
//
// A wait is communication that computing did not hide. Waits have a row of their own, so the benefit of overlap is a
// quotient of two sums, and what it misses can be seen in the trace (chrome_trace(); chrome://tracing and
// ui.perfetto.dev open it).

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/dist/comm/decorators.h"
#include "keel/runtime/memory_log.h"

namespace keel {

enum class TraceRow : std::uint8_t { compute, communication, waiting };
inline constexpr int kTraceRows = 3;
std::string_view name_of(TraceRow row);

// Bytes without pointers, so that ranks can send it as it is.
struct TraceSpan {
  std::int64_t begin = 0, end = 0;  // microseconds of the steady clock
  std::int64_t bytes = 0;           // of a collective's tensor; 0: none
  std::int64_t sent = 0;            // bytes that this rank has sent for it
  std::int32_t rank = 0;
  TraceRow row = TraceRow::compute;
  char text[43] = {};  // ends with a zero; longer names are cut

  std::string_view name() const { return text; }
};
static_assert(sizeof(TraceSpan) == 80);

TraceSpan make_span(int rank, TraceRow row, std::string_view name, std::int64_t begin, std::int64_t end,
                    std::int64_t bytes = 0, std::int64_t sent = 0);

// One rank's spans, in the order in which they ended. For one thread at a time.
class Trace {
 public:
  // Spans after the first `capacity` are counted, not kept: recording never allocates.
  explicit Trace(int rank, std::size_t capacity = std::size_t{1} << 16);

  static std::int64_t now();  // microseconds
  // From `begin` to now.
  void add(TraceRow row, std::string_view name, std::int64_t begin, std::int64_t bytes = 0, std::int64_t sent = 0);
  // What collectives of this subject (Collective::subject) are about: "reduce_scatter h.3" instead of "... 4".
  void name_subject(int subject, std::string name) { subjects_[subject] = std::move(name); }
  // Empty: it has no name.
  std::string_view name_of(int subject) const;

  int rank() const { return rank_; }
  std::span<const TraceSpan> spans() const { return spans_; }
  std::int64_t dropped() const { return dropped_; }
  // A collective that is recorded when its end is seen.
  void note(const std::shared_ptr<Operation>& collective);
  // Waits for those that were noted, so that all that were asked for are recorded. Every rank calls it.
  void settle();
  // Microseconds of all waits so far, those of dropped spans included: its growth is a step's exposed communication.
  std::int64_t waited() const { return waited_; }
  void clear();

 private:
  int rank_;
  std::vector<TraceSpan> spans_;
  std::map<int, std::string> subjects_;
  std::vector<std::weak_ptr<Operation>> under_way_;
  std::int64_t dropped_ = 0, waited_ = 0;
};

// A span from here to the end of the scope. The name must last as long.
class TraceScope {
 public:
  TraceScope(Trace& trace, TraceRow row, std::string_view name)
      : trace_(trace), row_(row), name_(name), begin_(Trace::now()) {}
  ~TraceScope() { trace_.add(row_, name_, begin_); }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Trace& trace_;
  TraceRow row_;
  std::string_view name_;
  std::int64_t begin_;
};

// Records every collective from begin() until its end is first seen, and every wait that found it unfinished. On a GPU,
// whose wait() only orders streams, that is what the processor sees. Groups that are split from it are recorded, too.
// Trace and inner communicator must outlive it and its Works.
class TracedCommunicator : public CommunicatorDecorator {
 public:
  TracedCommunicator(Communicator& inner, Trace& trace) : CommunicatorDecorator(inner), trace_(trace) {}
  Work begin(const Collective& collective) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  std::unique_ptr<Communicator> split_apart(int color, int key) override;

 private:
  Trace& trace_;
};

// All ranks' spans and changes of memory on rank 0, nothing elsewhere; every rank calls it. Clocks of other nodes are
// set by a barrier, which is as exact as that is quick; ranks of rank 0's node share its clock.
struct Recording {
  std::vector<TraceSpan> spans;
  std::vector<MemoryChange> memory;
};
Recording gather_recording(const Trace& trace, std::span<const MemoryChange> memory, Communicator& communicator);
std::vector<TraceSpan> gather_trace(const Trace& trace, Communicator& communicator);

// When the first of the spans begins, from which chrome_trace() counts; INT64_MAX where there is none.
std::int64_t start_of(std::span<const TraceSpan> spans);

// Chrome's trace event format, JSON: a process for each rank and in it a thread for each row, "X" events, times from
// the first span on. (Duan, "Trace Event Format", 2016.)
std::string chrome_trace(std::span<const TraceSpan> spans);

// How much of a rank's communication went unseen.
struct Overlap {
  double communication_ms = 0;  // while at least one collective was under way
  double exposed_ms = 0;        // of that, spent waiting
  double fraction() const { return communication_ms > 0 ? 1 - exposed_ms / communication_ms : 1; }
};
// The overlap in the spans of that rank between two times.
Overlap measure_overlap(std::span<const TraceSpan> spans, int rank, std::int64_t from = INT64_MIN,
                        std::int64_t to = INT64_MAX);

}  // namespace keel
