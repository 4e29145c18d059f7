#include "keel/trainer/run_trace.h"

#include <algorithm>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/parallel/unit_split.h"
#include "keel/runtime/file.h"
#include "keel/trainer/memory_trace.h"

namespace keel {

RunTrace::RunTrace(Communicator& engine_ranks, const Config& config)
    : plain_(engine_ranks),
      began_(engine_ranks.size()),
      steps_(std::max(config.log.trace.last_step(), config.profile.steps.last_step())),
      start_(config.profile.steps.is_none() ? 0 : config.profile.start.last_step()),
      by_rank_(!config.profile.steps.is_none()) {
  if (steps_ == 0) return;
  trace_.emplace(engine_ranks.rank());
  traced_.emplace(engine_ranks, *trace_);
}

void RunTrace::watch(Module& model, const Sharded& engine) {
  if (!trace_) return;
  modules_.push_back(std::make_unique<TracedModules>(model, *trace_));
  context_ = engine.context();
  const std::string& name = engine.options().name;
  for (std::size_t i = 0; i < engine.units().size(); ++i)
    trace_->name_subject(engine.options().first_subject + static_cast<int>(i),
                         concat(name, name.empty() ? "" : ": ", name_of_unit(engine.units()[i]->layout())));
}

void RunTrace::begin(std::int64_t step) {
  before_ = start_ > 0 ? start_ - 1 : step + 1;
  last_ = before_ + steps_;
  if (step >= last_) modules_.clear();
  else if (!modules_.empty() && step >= before_) begin_window();
}

void RunTrace::begin_window() {
  trace_->settle();
  trace_->clear();
  memory_.emplace(trace_->rank());
  memory_->begin(context_->allocator());
  step_begins_ = Trace::now();
}

std::string RunTrace::finish_step(std::int64_t step, Communicator& ranks, const RunFolder& folder) {
  if (modules_.empty() || step < before_) return "";  // spans before the window are forgotten when it begins
  if (step == before_) {
    begin_window();
    return "";
  }
  trace_->add(TraceRow::compute, concat("step ", step), step_begins_);
  step_begins_ = Trace::now();
  return step < last_ ? "" : write(ranks, folder);
}

std::string RunTrace::finish(std::int64_t step, Communicator& ranks, const RunFolder& folder) {
  return !modules_.empty() && step > before_ ? write(ranks, folder) : "";
}

std::string RunTrace::write(Communicator& ranks, const RunFolder& folder) {
  trace_->settle();
  modules_.clear();
  memory_->end();
  const std::string note = note_of_dropped(*trace_, *memory_);
  const auto write_both = [&](std::span<const TraceSpan> spans, std::span<const MemoryChange> changes,
                              const std::string& trace, const std::string& memory) {
    write_text_file(trace, chrome_trace(spans));
    write_text_file(memory, memory_trace(changes, began_, start_of(spans), memory_->dropped()).dump() + "\n");
  };
  const Recording all = by_rank_ ? Recording() : gather_recording(*trace_, memory_->changes(), ranks);
  together(ranks, [&] {
    const int number = trace_->rank();
    if (by_rank_) write_both(trace_->spans(), memory_->changes(), folder.trace_of(number), folder.memory_of(number));
    else if (ranks.rank() == 0) write_both(all.spans, all.memory, folder.trace(), folder.memory());
  });
  memory_.reset();
  return note;
}

std::string note_of_dropped(const Trace& trace, const MemoryLog& memory) {
  const std::int64_t dropped = trace.dropped() + memory.dropped();
  const std::size_t kept = trace.spans().size() + memory.changes().size();
  if (dropped == 0) return "";
  return concat("the trace has the first ", kept, " spans and changes of memory of its steps, and not the ", dropped,
                " after them; record fewer steps");
}

}  // namespace keel
