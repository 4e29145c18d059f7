#include "keel/trainer/run_trace.h"

#include <algorithm>

#include "keel/dist/comm/agreement.h"
#include "keel/runtime/file.h"

namespace keel {

RunTrace::RunTrace(Communicator& engine_ranks, const Config& config)
    : plain_(engine_ranks),
      steps_(std::max(config.log.trace.last_step(), config.profile.steps.last_step())),
      start_(config.profile.steps.is_none() ? 0 : config.profile.start.last_step()),
      by_rank_(!config.profile.steps.is_none()) {
  if (steps_ == 0) return;
  trace_.emplace(engine_ranks.rank());
  traced_.emplace(engine_ranks, *trace_);
}

void RunTrace::watch(Module& model) {
  if (trace_) modules_.push_back(std::make_unique<TracedModules>(model, *trace_));
}

void RunTrace::begin(std::int64_t step) {
  before_ = start_ > 0 ? start_ - 1 : step + 1;
  last_ = before_ + steps_;
  if (step >= last_) modules_.clear();
}

std::string RunTrace::finish_step(std::int64_t step, Communicator& ranks, const RunFolder& folder) {
  if (modules_.empty()) return "";
  if (step <= before_) trace_->clear();
  return step < last_ ? "" : write(ranks, folder);
}

std::string RunTrace::finish(std::int64_t step, Communicator& ranks, const RunFolder& folder) {
  return !modules_.empty() && step > before_ ? write(ranks, folder) : "";
}

std::string RunTrace::write(Communicator& ranks, const RunFolder& folder) {
  modules_.clear();
  const std::vector<TraceSpan> all = by_rank_ ? std::vector<TraceSpan>() : gather_trace(*trace_, ranks);
  together(ranks, [&] {
    if (by_rank_) write_text_file(folder.trace_of(ranks.rank()), chrome_trace(trace_->spans()));
    else if (ranks.rank() == 0) write_text_file(folder.trace(), chrome_trace(all));
  });
  if (trace_->dropped() == 0) return "";
  return concat("the trace has the first ", trace_->spans().size(), " spans of its steps, and not the ",
                trace_->dropped(), " after them; record fewer steps");
}

}  // namespace keel
