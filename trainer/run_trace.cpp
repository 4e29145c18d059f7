#include "keel/trainer/run_trace.h"

#include "keel/dist/comm/agreement.h"
#include "keel/runtime/file.h"

namespace keel {

RunTrace::RunTrace(Communicator& engine_ranks, std::int64_t steps) : plain_(engine_ranks), steps_(steps) {
  if (steps == 0) return;
  trace_.emplace(engine_ranks.rank());
  traced_.emplace(engine_ranks, *trace_);
}

void RunTrace::watch(Module& model) {
  if (trace_) modules_.emplace(model, *trace_);
}

void RunTrace::begin(std::int64_t first) { first_ = first; }

void RunTrace::finish_step(std::int64_t step, Communicator& ranks, const std::string& path) {
  const std::int64_t last = first_ + steps_;
  if (!trace_ || step > last) return;
  if (step == first_) trace_->clear();
  if (step < last) return;
  modules_.reset();
  const std::vector<TraceSpan> spans = gather_trace(*trace_, ranks);
  together(ranks, [&] {
    if (ranks.rank() == 0) write_text_file(path, chrome_trace(spans));
  });
}

}  // namespace keel
