// Traces: spans of collectives and waits, their JSON, and how much of communication they call hidden.

#include "keel/dist/comm/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "keel/dist/comm/schedule.h"
#include "tests/dist/comm/ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr TraceRow kCompute = TraceRow::compute, kCommunication = TraceRow::communication, kWaiting = TraceRow::waiting;

std::vector<TraceSpan> of_row(std::span<const TraceSpan> spans, TraceRow row) {
  std::vector<TraceSpan> found;
  for (const TraceSpan& span : spans)
    if (span.row == row) found.push_back(span);
  return found;
}

// Acceptance check 8.
TEST(Trace, KnowsHowMuchOfCommunicationIsHidden) {
  const TraceSpan work = make_span(0, kCompute, "forward", 0, 9'000);
  const TraceSpan sends = make_span(0, kCommunication, "all_reduce", 1'000, 5'000);
  const auto fraction_with = [&](std::int64_t waits_from) {
    const Overlap overlap =
        measure_overlap(std::vector{work, sends, make_span(0, kWaiting, "all_reduce", waits_from, 5'000)}, 0);
    EXPECT_EQ(overlap.communication_ms, 4);
    EXPECT_EQ(overlap.exposed_ms, static_cast<double>(5'000 - waits_from) / 1000);
    return overlap.fraction();
  };
  EXPECT_EQ(fraction_with(1'000), 0);
  EXPECT_EQ(fraction_with(3'000), 0.5);
  EXPECT_EQ(fraction_with(5'000), 1);
  EXPECT_EQ(measure_overlap(std::vector{work}, 0).fraction(), 1) << "nothing is sent, so nothing is seen";
}

TEST(Trace, CountsTimeOnceWhereCollectivesAreUnderWayTogether) {
  const std::vector<TraceSpan> spans = {
      make_span(0, kCommunication, "a", 0, 4'000),      make_span(0, kCommunication, "b", 2'000, 6'000),
      make_span(0, kCommunication, "c", 8'000, 10'000), make_span(0, kWaiting, "a", 3'000, 4'000),
      make_span(0, kWaiting, "b", 4'000, 6'000),        make_span(1, kCommunication, "a", 0, 90'000)};
  EXPECT_EQ(measure_overlap(spans, 0).communication_ms, 8);
  EXPECT_EQ(measure_overlap(spans, 0).exposed_ms, 3);
  EXPECT_EQ(measure_overlap(spans, 0, 3'500, 9'000).communication_ms, 3.5);
  EXPECT_EQ(measure_overlap(spans, 0, 3'500, 9'000).exposed_ms, 2.5);
  EXPECT_EQ(measure_overlap(spans, 1).fraction(), 1);
}

TEST(Trace, DropsAndCountsWhatItHasNoRoomFor) {
  Trace trace(3, 2);
  const TraceSpan* memory = trace.spans().data();
  for (int i = 0; i < 5; ++i) trace.add(kWaiting, "a name that is longer than the forty-two bytes of a span", 0);
  EXPECT_EQ(trace.spans().size(), 2u);
  EXPECT_EQ(trace.spans().data(), memory);
  EXPECT_EQ(trace.dropped(), 3);
  EXPECT_GT(trace.waited(), 4 * trace.spans()[0].end);
  const std::int64_t before = trace.waited(), begin = Trace::now();
  trace.add(kWaiting, "briefly", begin);
  EXPECT_LE(trace.waited() - before, Trace::now() - begin);
  EXPECT_GE(trace.waited(), before);
  EXPECT_EQ(trace.spans()[0].name(), "a name that is longer than the forty-two b");
  EXPECT_EQ(trace.spans()[0].rank, 3);
  trace.clear();
  EXPECT_EQ(trace.spans().size() + static_cast<std::size_t>(trace.dropped() + trace.waited()), 0u);
}

TEST(Trace, IsChromesJson) {
  const std::vector<TraceSpan> spans = {make_span(0, kCompute, "forward \"h\\0\"\n\xe9", 1'000, 1'500),
                                        make_span(1, kCommunication, "all_gather 2", 1'200, 1'900, 64),
                                        make_span(1, kCommunication, "all_gather 3", 1'300, 2'000, 64),
                                        make_span(1, kCommunication, "all_gather 4", 1'950, 2'100, 64)};
  const json trace = json::parse(chrome_trace(spans));
  std::map<std::string, json> events;
  std::map<std::pair<int, int>, std::string> threads;
  std::map<int, std::string> processes;
  for (const json& event : trace.at("traceEvents")) {
    const int rank = event.at("pid");
    if (event.at("ph") == "X") events[event.at("name")] = event;
    else if (event.at("name") == "thread_name") threads[{rank, event.at("tid")}] = event.at("args").at("name");
    else if (event.at("name") == "process_name") processes[rank] = event.at("args").at("name");
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{0, "rank 0"}, {1, "rank 1"}}));
  EXPECT_EQ(threads.at({0, 0}), "compute");
  EXPECT_EQ(threads.at({0, 1}), "communication");
  EXPECT_EQ(threads.at({0, 2}), "waiting");
  EXPECT_EQ(threads.at({1, 3}), "communication 2");
  EXPECT_FALSE(threads.contains({0, 3}));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events.at("forward \"h\\0\"\n\xc3\xa9").at("dur"), 500);
  EXPECT_EQ(events.at("all_gather 2").at("ts"), 200);
  EXPECT_EQ(events.at("all_gather 2").at("tid"), 1);
  EXPECT_EQ(events.at("all_gather 3").at("tid"), 3) << "beside the one that is under way";
  EXPECT_EQ(events.at("all_gather 4").at("tid"), 1) << "the first line is free again";
  EXPECT_EQ(events.at("all_gather 2").at("args").at("bytes"), 64);
  EXPECT_TRUE(json::parse(chrome_trace({})).at("traceEvents").empty());
}

// Rank 1 comes 40 ms late to each of two collectives. Rank 0 waits for the first and computes through the second.
TEST(Trace, ShowsTheDelayOfAnotherRankAsWaitedForOrHidden) {
  KEEL_NEEDS_RANKS(2);
  testing::on_ranks(2, [](Communicator& direct) {
    Trace trace(direct.rank());
    TracedCommunicator comm(direct, trace);
    const Tensor x = zeros(testing::context(1), {1000}, DType::f32);
    comm.barrier();
    trace.clear();
    const auto exchange = [&](bool hides) {
      const std::int64_t from = Trace::now();
      if (comm.rank() == 1) std::this_thread::sleep_for(40ms);
      const Work work = comm.all_reduce(x, CombineOp::sum, 7);
      if (hides) {
        const TraceScope scope(trace, kCompute, "forward");
        while (!work.has_finished()) {
          comm.poll();
          std::this_thread::sleep_for(100us);
        }
      }
      work.wait();
      const Overlap overlap = measure_overlap(trace.spans(), comm.rank(), from);
      comm.barrier();
      return overlap;
    };
    const Overlap waited = exchange(false);
    const auto collectives = of_row(trace.spans(), kCommunication), waits = of_row(trace.spans(), kWaiting);
    ASSERT_GE(collectives.size(), 1u);
    EXPECT_EQ(collectives[0].name(), "all_reduce 7");
    EXPECT_EQ(collectives[0].bytes, 4000);
    if (comm.rank() == 0) {
      EXPECT_GE(waited.communication_ms, 30);
      EXPECT_LE(waited.fraction(), 0.1);
      EXPECT_EQ(waits.at(0).name(), "all_reduce 7");
      EXPECT_GE(trace.waited(), 30'000);
    }
    const std::size_t before = of_row(trace.spans(), kCompute).size();
    const Overlap hidden = exchange(true);
    EXPECT_EQ(of_row(trace.spans(), kCompute).size(), before + 1);
    EXPECT_EQ(hidden.exposed_ms, 0);
    if (comm.rank() == 0) { EXPECT_GE(hidden.communication_ms, 30); }
  });
}

TEST(Trace, RecordsGroupsThatAreSplitOff) {
  KEEL_NEEDS_RANKS(2);
  testing::on_ranks(2, [](Communicator& direct) {
    Trace trace(direct.rank());
    TracedCommunicator comm(direct, trace);
    const auto group = comm.split(0, comm.rank());
    group->all_reduce(zeros(testing::context(1), {8}, DType::f32)).wait();
    EXPECT_EQ(of_row(trace.spans(), kCommunication).size(), 1u);
    EXPECT_EQ(group->size(), 2);
  });
}

// Several at once, whose messages mix: each knows its own.
TEST(Trace, HasTheBytesThatEachCollectiveSent) {
  for (const int ranks : {2, 3}) {
    if (!testing::has_ranks(ranks)) continue;
    testing::on_ranks(ranks, [&](Communicator& direct) {
      Trace trace(direct.rank());
      trace.name_subject(5, "h.0");
      TracedCommunicator comm(direct, trace);
      const std::int64_t before = comm.traffic().sent();
      const Context& host = testing::context(1);
      const std::int64_t n = 12'000;
      const Tensor whole = zeros(host, {n}, DType::f32), other = zeros(host, {n}, DType::f32),
                   gathered = zeros(host, {n}, DType::f32);
      const Span own = part({0, n}, ranks, comm.rank());
      const Tensor shard = zeros(host, {own.count()}, DType::f32), mine = zeros(host, {own.count()}, DType::f32);
      const Work reducing = comm.reduce_scatter(whole, shard, CombineOp::sum, 5);
      const Work gathering = comm.all_gather(mine, gathered, 6);
      const Work summing = comm.all_reduce(other);
      for (const Work* work : {&summing, &gathering, &reducing}) work->wait();
      std::map<std::string, std::int64_t> sent;
      std::int64_t sum = 0;
      for (const TraceSpan& span : of_row(trace.spans(), kCommunication)) {
        sent[std::string(span.name())] += span.sent;
        sum += span.sent;
      }
      EXPECT_EQ(sum, comm.traffic().sent() - before);
      EXPECT_EQ(sent.at("reduce_scatter h.0"), 4 * (n - own.count()));
      EXPECT_EQ(sent.at("all_gather 6"), 4 * (ranks - 1) * own.count());
      EXPECT_EQ(sent.at("all_reduce"), 4 * (n - own.count() + (ranks - 1) * own.count()));
    });
  }
}

TEST(Trace, SettlesWhatIsUnderWay) {
  KEEL_NEEDS_RANKS(2);
  testing::on_ranks(2, [](Communicator& direct) {
    Trace trace(direct.rank());
    TracedCommunicator comm(direct, trace);
    const Tensor x = zeros(testing::context(1), {1000}, DType::f32), y = zeros(testing::context(1), {1000}, DType::f32);
    const Work first = comm.all_reduce(x), second = comm.all_reduce(y);
    comm.all_reduce(zeros(testing::context(1), {8}, DType::f32));  // nobody waits for it
    trace.settle();
    EXPECT_GE(of_row(trace.spans(), kCommunication).size(), 2u);
    EXPECT_TRUE(first.has_finished() && second.has_finished());
    const std::size_t before = trace.spans().size();
    trace.settle();
    EXPECT_EQ(trace.spans().size(), before);
    comm.barrier();
  });
}

TEST(Trace, OfAllRanksComesTogetherOnTheFirst) {
  for (const int ranks : {1, 2, 3}) {
    if (!testing::has_ranks(ranks)) continue;
    testing::on_ranks(ranks, [&](Communicator& comm) {
      Trace trace(comm.rank());
      for (int i = 0; i < 2 * comm.rank(); ++i) trace.add(kCompute, concat("step ", i), Trace::now() - 5, 8 * i);
      const std::vector<TraceSpan> all = gather_trace(trace, comm);
      if (comm.rank() != 0) {
        EXPECT_TRUE(all.empty());
        return;
      }
      ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks * (ranks - 1)));
      std::size_t at = 0;
      for (int rank = 0; rank < ranks; ++rank)
        for (int i = 0; i < 2 * rank; ++i, ++at) {
          EXPECT_EQ(all[at].rank, rank);
          EXPECT_EQ(all[at].name(), concat("step ", i));
          EXPECT_EQ(all[at].bytes, 8 * i);
          EXPECT_GE(all[at].end, all[at].begin + 5);
        }
      EXPECT_EQ(json::parse(chrome_trace(all)).at("traceEvents").size(),
                all.size() + 4 * static_cast<std::size_t>(ranks - 1));
    });
  }
}

TEST(Trace, BringsChangesOfMemoryTogetherToo) {
  KEEL_NEEDS_RANKS(3);
  testing::on_ranks(3, [](Communicator& comm) {
    const Trace trace(comm.rank());
    std::vector<MemoryChange> own;
    for (int i = 0; i < comm.rank(); ++i)
      own.push_back({.time = i, .bytes = 10 * comm.rank() + i, .block = 7, .rank = comm.rank()});
    const Recording all = gather_recording(trace, own, comm);
    EXPECT_TRUE(all.spans.empty());
    std::vector<std::int64_t> bytes, times;
    for (const MemoryChange& change : all.memory) {
      bytes.push_back(change.bytes);
      times.push_back(change.time);
    }
    EXPECT_EQ(times, comm.rank() == 0 ? (std::vector<std::int64_t>{0, 0, 1}) : std::vector<std::int64_t>())
        << "ranks of one node have one clock";
    EXPECT_EQ(bytes, comm.rank() == 0 ? (std::vector<std::int64_t>{10, 20, 21}) : std::vector<std::int64_t>());
  });
}

// Ranks of another node have another clock: their spans are moved by what a barrier shows.
TEST(Trace, SetsTheClocksOfOtherNodes) {
  KEEL_NEEDS_RANKS(2);
  testing::on_ranks(2,
                    [](Communicator& comm) {
                      Trace trace(comm.rank());
                      comm.barrier();
                      trace.add(kCompute, "together", Trace::now() - 1000);
                      const std::vector<TraceSpan> all = gather_trace(trace, comm);
                      if (comm.rank() != 0) return;
                      ASSERT_EQ(all.size(), 2u);
                      EXPECT_LT(std::abs(all[0].begin - all[1].begin), 500'000);
                    },
                    {.nodes = {0, 1}});
}

}  // namespace
}  // namespace keel
