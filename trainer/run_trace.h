#pragma once
// The trace of some steps of a run, from all ranks into one file.

#include <optional>
#include <string>

#include "keel/dist/comm/trace.h"
#include "keel/dist/parallel/trace_modules.h"

namespace keel {

class RunTrace {
 public:
  // Records the `steps` steps after step `first`. Every rank makes one, of the communicator that its engine will use,
  // which must outlive it.
  RunTrace(Communicator& engine_ranks, std::int64_t first, std::int64_t steps);

  // The communicator for the engine, which records what passes.
  Communicator& ranks() { return traced_ ? *traced_ : plain_; }
  // Once the engine has been made.
  void watch(Module& model);
  // After each step; writes the file when the last one to record is over. Every rank calls it.
  void finish_step(std::int64_t step, Communicator& ranks, const std::string& path);

 private:
  Communicator& plain_;
  std::int64_t first_, last_;
  std::optional<Trace> trace_;
  std::optional<TracedCommunicator> traced_;
  std::optional<TracedModules> modules_;
};

}  // namespace keel
