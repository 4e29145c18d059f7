#pragma once
// The trace of some steps of a run, from all ranks into one file.

#include <optional>
#include <string>

#include "keel/dist/comm/trace.h"
#include "keel/dist/parallel/trace_modules.h"

namespace keel {

class RunTrace {
 public:
  // Records so many steps. Every rank makes one, of the communicator that its engine will use, which must outlive it.
  RunTrace(Communicator& engine_ranks, std::int64_t steps);

  // The communicator for the engine, which records what passes.
  Communicator& ranks() { return traced_ ? *traced_ : plain_; }
  // Once the engine has been made.
  void watch(Module& model);
  // The steps to record come after this one.
  void begin(std::int64_t first);
  // After each step; writes the file when the last one to record is over. Every rank calls it.
  void finish_step(std::int64_t step, Communicator& ranks, const std::string& path);

 private:
  Communicator& plain_;
  std::int64_t steps_, first_ = 0;
  std::optional<Trace> trace_;
  std::optional<TracedCommunicator> traced_;
  std::optional<TracedModules> modules_;
};

}  // namespace keel
