// Traces of real training steps: what is computed, what is sent, and what is waited for.

#include "keel/dist/parallel/trace_modules.h"

#include <gtest/gtest.h>

#include <mutex>
#include <optional>

#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

std::vector<std::string> names_of(std::span<const TraceSpan> spans, TraceRow row) {
  std::vector<std::string> names;
  for (const TraceSpan& span : spans)
    if (span.row == row) names.emplace_back(span.name());
  return names;
}

// A step of a net that is made again for each, and the weights after it.
std::vector<double> train_step(Communicator& comm, int number, Trace* trace) {
  const Context context = testing::context(1);
  UnitNet net;
  std::optional<TracedCommunicator> traced;
  if (trace != nullptr) traced.emplace(comm, *trace);
  Sharded engine(net, context, traced ? *traced : comm, make_adamw(), stage(number));
  {
    std::optional<TracedModules> modules;
    if (trace != nullptr) {
      modules.emplace(net, *trace);
      trace->clear();
    }
    engine.backward(mean(net(rows(context, 0, comm, 0, 1, 100, DType::f32))));
    engine.step(1e-2);
    for (const auto& unit : engine.units()) unit->parameters().wait_gathered();
  }
  const std::int64_t spans = trace == nullptr ? 0 : static_cast<std::int64_t>(trace->spans().size());
  std::vector<double> values = whole_values(engine);
  engine.backward(mean(net(rows(context, 1, comm, 0, 1, 100, DType::f32))));  // hooks outlive the trace of modules
  engine.step(1e-2);
  if (trace != nullptr) {
    for (const TraceSpan& span : trace->spans().subspan(static_cast<std::size_t>(spans)))
      EXPECT_NE(span.row, TraceRow::compute) << span.name();
  }
  return values;
}

TEST(TracedStep, HoldsForwardAndBackwardOfEachUnitInTheirOrder) {
  run_ranks(2, [](Communicator& comm) {
    Trace trace(comm.rank());
    train_step(comm, 2, &trace);
    EXPECT_EQ(
        names_of(trace.spans(), TraceRow::compute),
        (std::vector<std::string>{"forward layers.0", "forward layers.1", "forward layers.2", "forward layers.3",
                                  "backward layers.3", "backward layers.2", "backward layers.1", "backward layers.0"}));
    std::int64_t reached = 0;
    for (const TraceSpan& span : trace.spans()) {
      EXPECT_EQ(span.rank, comm.rank());
      EXPECT_LE(span.begin, span.end);
      if (span.row != TraceRow::compute) continue;
      EXPECT_GE(span.begin, reached) << span.name() << " begins after the one before it";
      reached = span.end;
    }
  });
}

TEST(TracedStep, HoldsEveryCollectiveAndAsMuchWaitingAsIsExposed) {
  run_ranks(3, [](Communicator& comm) {
    for (const int number : {0, 1, 2, 3}) {
      Trace trace(comm.rank());
      train_step(comm, number, &trace);
      std::size_t reductions = 0, gathers = 0;
      for (const std::string& name : names_of(trace.spans(), TraceRow::communication)) {
        reductions += name.starts_with(number == 0 ? "all_reduce " : "reduce_scatter ");
        gathers += name.starts_with("all_gather ");
      }
      EXPECT_EQ(reductions, 8u) << "four units in each of two steps, stage " << number;
      EXPECT_EQ(gathers > 0, number > 0);
      std::int64_t waited = 0;
      for (const TraceSpan& span : trace.spans())
        if (span.row == TraceRow::waiting) waited += span.end - span.begin;
      EXPECT_EQ(waited, trace.waited());
      const Overlap overlap = measure_overlap(trace.spans(), comm.rank());
      EXPECT_GT(overlap.communication_ms, 0);
      EXPECT_LE(overlap.exposed_ms, overlap.communication_ms);
      EXPECT_NEAR(overlap.exposed_ms, static_cast<double>(waited) / 1000, 0.001)
          << "one thread waits for one at a time";
    }
  });
}

TEST(TracedStep, ABackwardSpanEndsOnceAllGradientsOfItsUnitAreThere) {
  const Context context = testing::context(1);
  UnitNet net(kWidth, 2);
  Sharded engine(net, context, make_sgd());
  Trace trace(0);
  TracedModules modules(net, trace);
  std::vector<std::size_t> spans;  // of computing, at each gradient
  const auto note = [&](BackwardPass&) { spans.push_back(names_of(trace.spans(), TraceRow::compute).size()); };
  for_each_parameter(net,
                     [&](const std::string&, Parameter& each) { each.variable().leaf()->when_ready(&spans, note); });
  for (std::size_t step = 0; step < 2; ++step) {
    trace.clear();
    spans.clear();
    engine.backward(mean(net(uniform_tensor(context, {4, kWidth}, step))));
    EXPECT_EQ(spans, (std::vector<std::size_t>{2, 3, 3, 4})) << "two spans of the forward pass are before";
    engine.step(1e-2);
  }
  for_each_parameter(net, [&](const std::string&, Parameter& each) { each.variable().leaf()->forget_hooks(&spans); });
}

TEST(TracedStep, ChangesNoBit) {
  std::mutex mutex;
  run_ranks(2, [&](Communicator& comm) {
    for (const int number : {0, 3}) {
      Trace trace(comm.rank());
      const std::vector<double> plain = train_step(comm, number, nullptr), traced = train_step(comm, number, &trace);
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(plain == traced) << "stage " << number;
    }
  });
}

}  // namespace
}  // namespace keel
