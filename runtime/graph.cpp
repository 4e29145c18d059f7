#include "keel/runtime/graph.h"

#include <utility>

#include "keel/runtime/device_api.h"
#include "keel/runtime/error.h"

namespace keel {

KeptMemory::KeptMemory(const Context& context, const Stream& stream) : context_(context), stream_(stream) {
  context_.allocator().hold(stream_);
}
KeptMemory::~KeptMemory() { context_.allocator().let_go(stream_); }

struct Graph::State {
  State(const Context& owner, const Stream& recorded_on)
      : context(owner), stream(recorded_on), memory(owner, recorded_on) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (native != nullptr) context.api().destroy_graph(native);
  }

  Context context;
  Stream stream;
  KeptMemory memory;
  NativeGraph native = nullptr;
};

Graph Graph::record(const Context& context, const Stream& stream, FunctionRef<void()> work) {
  if (!stream.is_asynchronous())
    throw Error(concat("work on ", context.device(), " happens at once and cannot be recorded as a graph"),
                ErrorKind::unsupported);
  DeviceApi& api = context.api();
  Graph graph;
  graph.state_ = std::make_shared<State>(context, stream);
  const StreamScope scope(context, stream);
  api.begin_capture(stream.native());
  try {
    work();
  } catch (...) {
    try {
      api.destroy_graph(api.end_capture(stream.native()));
    } catch (const Error&) {  // a broken recording ends with an error, too; the first one tells more
    }
    throw;
  }
  graph.state_->native = api.end_capture(stream.native());
  return graph;
}

void Graph::launch() const {
  KEEL_CHECK(state_ != nullptr, "an empty graph cannot be launched");
  state_->context.api().launch_graph(state_->native, state_->stream.native());
}

}  // namespace keel
