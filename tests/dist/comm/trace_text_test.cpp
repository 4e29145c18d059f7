// The text of a trace to the last byte, and the names and bytes of its spans.

#include <gtest/gtest.h>

#include "keel/dist/comm/decorators.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/dist/comm/trace.h"
#include "tests/support.h"

namespace keel {
namespace {

// Of two collectives that begin together the first has the first line; one that begins where another ends has its line.
TEST(TraceText, HasALineForEachThreadAndSpan) {
  const std::vector<TraceSpan> spans = {make_span(0, TraceRow::compute, "a b~", 1'000, 1'500),
                                        make_span(1, TraceRow::communication, "x", 1'200, 1'900, 64, 32),
                                        make_span(1, TraceRow::communication, "y", 1'200, 2'000, 8, 4),
                                        make_span(1, TraceRow::communication, "z", 1'300, 1'400, 1, 1),
                                        make_span(1, TraceRow::waiting, "x", 1'900, 1'950, 64),
                                        make_span(1, TraceRow::communication, "w", 1'400, 1'500, 2, 2)};
  EXPECT_EQ(chrome_trace(spans), R"({"displayTimeUnit":"ms","traceEvents":[
{"name":"process_name","ph":"M","pid":0,"tid":0,"args":{"name":"rank 0"}},
{"name":"thread_name","ph":"M","pid":0,"tid":0,"args":{"name":"compute"}},
{"name":"thread_name","ph":"M","pid":0,"tid":1,"args":{"name":"communication"}},
{"name":"thread_name","ph":"M","pid":0,"tid":2,"args":{"name":"waiting"}},
{"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"rank 1"}},
{"name":"thread_name","ph":"M","pid":1,"tid":0,"args":{"name":"compute"}},
{"name":"thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"communication"}},
{"name":"thread_name","ph":"M","pid":1,"tid":2,"args":{"name":"waiting"}},
{"name":"thread_name","ph":"M","pid":1,"tid":3,"args":{"name":"communication 2"}},
{"name":"thread_name","ph":"M","pid":1,"tid":4,"args":{"name":"communication 3"}},
{"name":"a b~","ph":"X","pid":0,"tid":0,"ts":0,"dur":500},
{"name":"x","ph":"X","pid":1,"tid":1,"ts":200,"dur":700,"args":{"bytes":64,"sent":32}},
{"name":"y","ph":"X","pid":1,"tid":3,"ts":200,"dur":800,"args":{"bytes":8,"sent":4}},
{"name":"z","ph":"X","pid":1,"tid":4,"ts":300,"dur":100,"args":{"bytes":1,"sent":1}},
{"name":"x","ph":"X","pid":1,"tid":2,"ts":900,"dur":50,"args":{"bytes":64,"sent":0}},
{"name":"w","ph":"X","pid":1,"tid":4,"ts":400,"dur":100,"args":{"bytes":2,"sent":2}}
]}
)");
  EXPECT_EQ(chrome_trace({}), "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n]}\n");
}

// Collectives whose bytes are known to the communicator alone, once they have begun.
class SilentCommunicator : public CommunicatorDecorator {
 public:
  using CommunicatorDecorator::CommunicatorDecorator;
  Work begin(const Collective& collective) override {
    const Work work = CommunicatorDecorator::begin(collective);
    work.wait();
    return Work(std::make_shared<Silent>());
  }

 private:
  class Silent : public Operation {
   public:
    bool advance() override { return true; }
    void wait() override {}
  };
};

TEST(TraceText, HasWhatACollectiveIsAboutAndWhatTheCommunicatorHasSentForIt) {
  run_ranks(3, [](Communicator& direct) {
    Trace trace(direct.rank());
    const std::string name(60, 'n');
    trace.name_subject(5, name);
    trace.name_subject(6, "h.3");
    SilentCommunicator silent(direct);
    TracedCommunicator comm(silent, trace);
    const Tensor x = zeros(testing::context(1), {12});
    for (const int subject : {0, 1, 5, 6, 7}) comm.all_reduce(x, CombineOp::sum, subject).wait();
    std::vector<std::string> names;
    for (const TraceSpan& span : trace.spans()) {
      EXPECT_EQ(span.row, TraceRow::communication) << "nobody had to wait";
      EXPECT_EQ(span.bytes, 48);
      EXPECT_EQ(span.sent, 2 * 2 * 4 * 4) << "two shards, and its own sum to two";
      names.emplace_back(span.name());
    }
    EXPECT_EQ(names, (std::vector<std::string>{"all_reduce", "all_reduce 1",
                                               ("all_reduce " + name).substr(0, sizeof TraceSpan::text - 1),
                                               "all_reduce h.3", "all_reduce 7"}));
  });
}

}  // namespace
}  // namespace keel
