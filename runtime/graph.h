#pragma once
// Work that is recorded once and then repeated with a single call.

#include <memory>

#include "keel/runtime/context.h"
#include "keel/runtime/parallel.h"
#include "keel/runtime/stream.h"

namespace keel {

// While it lives, memory that work in the stream has released is kept for later work in that stream. Without it, an
// allocation that finds the device full gives all unused memory back, and a recording cannot ask for it again.
class KeptMemory {
 public:
  KeptMemory(const Context& context, const Stream& stream);
  ~KeptMemory();
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

 private:
  Context context_;
  Stream stream_;
};

// Launching some hundred kernels one by one can cost the host more time than they cost the device; a graph is one
// launch. It repeats what was asked of the device: the same kernels, on the same memory, with the same arguments. So
// what changes between repetitions must lie in the device's memory. Nobody else may get that memory: the work allocates
// from the stream that it is recorded on, which should serve nothing else, and what it releases stays with that stream
// while the graph lives.
class Graph {
 public:
  Graph() = default;
  // Calls work() with this thread's work for the context going to `stream`, where it is recorded and does not happen.
  // An Error where the work cannot be recorded, such as one that waits, or allocates memory that the stream has not
  // released before: run it once or twice in the stream first, under KeptMemory. The graph keeps its memory itself.
  static Graph record(const Context& context, const Stream& stream, FunctionRef<void()> work);
  explicit operator bool() const { return state_ != nullptr; }
  // Asks for the work once more, in the stream that it was recorded on.
  void launch() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace keel
