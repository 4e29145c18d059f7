// The window of steps that a run records, and which ranks write what.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "keel/runtime/json.h"
#include "keel/trainer/run_trace.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

// How often something was computed in the trace, by its rank.
std::map<std::int64_t, int> times_in(const std::string& file, std::string_view name) {
  std::map<std::int64_t, int> times;
  const Json trace = Json::parse(read_text_file(file));
  for (const Json& event : trace.at("traceEvents").items())
    if (event.at("ph").string() == "X" && event.at("name").string() == name) ++times[event.at("pid").integer()];
  return times;
}

Config profiled(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more) {
  more.insert(more.end(), {"strategy=zero3-fp32", "steps=8", "eval.every=0", "checkpoint.every=0", "batch.micro=6"});
  return small_run(place, run, more);
}

TEST(Profile, IsAWindowOfStepsInAFileOfEachRank) {
  const TemporaryFolder place;
  for (const int n : {1, 2, 3}) {
    const Config config = profiled(place, concat("run", n), {"profile={start: 3, steps: 2}"});
    train_by(n, config);
    const RunFolder folder(config.run);
    for (int rank = 0; rank < n; ++rank)
      EXPECT_EQ(times_in(folder.trace_of(rank), "backward h.0"), (std::map<std::int64_t, int>{{rank, 2}})) << n;
    EXPECT_FALSE(std::filesystem::exists(folder.trace_of(n)));
    EXPECT_FALSE(std::filesystem::exists(folder.trace()));
  }
}

TEST(Profile, RecordsThePartOfItsWindowThatASessionHas) {
  const TemporaryFolder place;
  const auto run = [&](const char* name, const char* window, std::vector<std::string> more = {}) {
    more.emplace_back(window);
    const Config config = profiled(place, name, more);
    train_by(2, config);
    const std::string file = RunFolder(config.run).trace_of(0);
    return std::filesystem::exists(file) ? times_in(file, "backward h.0")[0] : 0;
  };
  EXPECT_EQ(run("first", "profile={start: 1, steps: 3}"), 3);
  EXPECT_EQ(run("cut", "profile={start: 7, steps: 5}"), 2) << "the run ends inside it";
  EXPECT_EQ(run("late", "profile={start: 9, steps: 5}"), 0);
  const Config begun = profiled(place, "resumed", {"profile={start: 3, steps: 4}"});
  train_by(2, begun, 4);
  const RunFolder folder(begun.run);
  const std::int64_t from = read_whole(folder.checkpoint_called(folder.named_by(folder.latest()))).step;
  EXPECT_EQ(run("resumed", "profile={start: 3, steps: 4}", {"resume=auto"}), 6 - from);
}

TEST(Profile, TellsWhatItHadNoRoomFor) {
  const auto told = [](int spans, int changes) {
    Trace trace(0, 3);
    for (int i = 0; i < spans; ++i) trace.add(TraceRow::compute, "work", 0);
    MemoryLog memory(0, 2);
    for (int i = 0; i < changes; ++i) memory.changed(nullptr, 8, Purpose::bucket);
    return note_of_dropped(trace, memory);
  };
  const auto note = [](int kept, int dropped) {
    return concat("the trace has the first ", kept, " spans and changes of memory of its steps, and not the ", dropped,
                  " after them; record fewer steps");
  };
  EXPECT_EQ(told(0, 0), "");
  EXPECT_EQ(told(3, 2), "");
  EXPECT_EQ(told(4, 0), note(3, 1));
  EXPECT_EQ(told(1, 3), note(3, 1));
  EXPECT_EQ(told(4, 4), note(5, 3));
}

TEST(Profile, IsOneWindowOfARun) {
  const TemporaryFolder place;
  EXPECT_NE(error_of([&] {
              profiled(place, "run", {"profile.steps=2", "log.trace=2"});
            }).find("another window"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
