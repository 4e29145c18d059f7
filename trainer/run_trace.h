#pragma once
// What ranks do in some steps of a run, and the memory that they have: of all ranks in one file, or of each in one of
// its own.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "keel/dist/comm/trace.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/dist/parallel/trace_modules.h"
#include "keel/runtime/memory_log.h"
#include "keel/trainer/config.h"
#include "keel/trainer/run_folder.h"

namespace keel {

class RunTrace {
 public:
  // Records the steps that the configuration names (log.trace or profile). Every rank makes one, of the communicator
  // that its engine will use, which must outlive it.
  RunTrace(Communicator& engine_ranks, const Config& config);

  // The communicator for the engine, which records what passes.
  Communicator& ranks() { return traced_ ? *traced_ : plain_; }
  // Several models come one after the other. The engine outlives this.
  void watch(Module& model, const Sharded& engine);
  // Begins a span of computing that this does not see, if a step is recorded.
  void begin_span(std::optional<TraceScope>& span, std::string_view name) {
    if (!modules_.empty()) span.emplace(*trace_, TraceRow::compute, name);
  }
  // The session begins after so many steps.
  void begin(std::int64_t step);
  // After each step; writes when the last one to record is over. Every rank calls it. Returns what is to be told;
  // empty: nothing.
  std::string finish_step(std::int64_t step, Communicator& ranks, const RunFolder& folder);
  // The session ends after this step: writes a window that it has cut. Likewise.
  std::string finish(std::int64_t step, Communicator& ranks, const RunFolder& folder);

 private:
  void begin_window();
  std::string write(Communicator& ranks, const RunFolder& folder);

  Communicator& plain_;
  int began_;                   // ranks of the session; those that are left have other numbers once some were lost
  std::int64_t steps_, start_;  // of the window; start 0: the session's second step
  bool by_rank_;
  std::int64_t before_ = 0, last_ = 0;  // the step before the window, and its last one
  std::optional<Trace> trace_;
  std::optional<TracedCommunicator> traced_;
  std::vector<std::unique_ptr<TracedModules>> modules_;  // none: nothing is recorded any more
  std::optional<Context> context_;                       // of the engines
  std::optional<MemoryLog> memory_;
  std::int64_t step_begins_ = 0;  // microseconds
};

// What a run is to be told of what a window had no room for; empty: nothing.
std::string note_of_dropped(const Trace& trace, const MemoryLog& memory);

}  // namespace keel
