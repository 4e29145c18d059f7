// `keel show`: what it says of a recorded step is what the allocator and the engine counted.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "cli/step_record.h"
#include "keel/runtime/json.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::Sandbox;

constexpr const char* kRun =
    " run=seen steps=3 log.every=1 eval.every=0 checkpoint.every=0 scheduler.warmup=0 batch.global=12 batch.micro=3";

// A record of metrics.jsonl that has the key.
Json record_with(const std::string& text, const std::string& key, std::int64_t step = -1) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    const Json record = Json::parse(text.substr(begin, end - begin));
    if (record.contains(key) && (step < 0 || record.at("step").integer() == step)) return record;
    begin = end + 1;
  }
  throw Error(concat("no record has ", key));
}

// The most that each purpose had in what the first rank recorded.
std::map<std::string, std::int64_t> most_of(const Json& memory) {
  std::map<std::string, std::int64_t> now, most;
  for (const Json& change : memory.at("ranks").items()[0].at("changes").items()) {
    const std::string& purpose =
        memory.at("purposes").items()[static_cast<std::size_t>(change.items()[2].integer())].string();
    most[purpose] = std::max(most[purpose], now[purpose] += change.items()[1].integer());
  }
  return most;
}

TEST(ShowCommand, ThePeakIsTheAllocatorsAndTheBytesAreTheEngines) {
  for (const char* const strategy : {"zero3-fp32", "zero2-bf16", "ddp-fp32"}) {
    SCOPED_TRACE(strategy);
    const Sandbox sandbox;
    const Outcome trained = sandbox.keel(concat("launch -N 2 --threads ", KEEL_SOURCE_DIR,
                                                "/tests/cli/small.yaml strategy=", strategy, kRun, " log.trace=1"));
    ASSERT_EQ(trained.code, 0) << trained.err;
    const Outcome shown = sandbox.keel("show seen --json");
    ASSERT_EQ(shown.code, 0) << shown.err;
    const Json told = Json::parse(shown.out);
    EXPECT_EQ(told.at("step").integer(), 2);
    ASSERT_EQ(told.at("ranks").items().size(), 2u);
    const std::string metrics = sandbox.read("seen/metrics.jsonl");
    for (const Json& rank : told.at("ranks").items()) {
      std::int64_t alive = 0;
      for (const Json& group : rank.at("alive").items()) alive += group.at("bytes").integer();
      EXPECT_EQ(alive, rank.at("peak_bytes").integer());
      EXPECT_GT(alive, 0);
    }
    EXPECT_EQ(told.at("ranks").items()[0].at("sent_bytes_of_units").integer(),
              record_with(metrics, "sent_bytes", 2).at("sent_bytes").integer());
    const auto most = most_of(Json::parse(sandbox.read("seen/memory.json")));
    const Json peaks = record_with(metrics, "peak_parameter_bytes");
    for (const char* const purpose : {"parameter", "gradient", "optimizer", "bucket"}) {
      const auto found = most.find(purpose);
      EXPECT_EQ(found == most.end() ? 0 : found->second, peaks.at(concat("peak_", purpose, "_bytes")).integer())
          << purpose;
    }
    const Outcome page = sandbox.keel("show seen --out page.html");
    ASSERT_EQ(page.code, 0) << page.err;
    const std::string html = sandbox.read("page.html");
    EXPECT_NE(html.find("\"step\":2"), std::string::npos);
    EXPECT_EQ(html.find("/*"), std::string::npos) << "a place that was not filled";
  }
}

// The data of a page.
Json data_in(const std::string& html) {
  const std::string_view before = "const data = ";
  const std::size_t begin = html.find(before) + before.size();
  return Json::parse(html.substr(begin, html.find(";\n", begin) - begin));
}

// What a rank wrote that was lost is gone; the others' is as it was.
void forget_rank(const Sandbox& sandbox, int lost) {
  Json trace = Json::parse(sandbox.read("seen/trace.json")), memory = Json::parse(sandbox.read("seen/memory.json"));
  Json events = Json::array(), ranks = Json::array();
  for (const Json& event : trace.at("traceEvents").items())
    if (event.at("pid").integer() != lost) events.push_back(event);
  for (const Json& rank : memory.at("ranks").items())
    if (rank.at("rank").integer() != lost) ranks.push_back(rank);
  trace["traceEvents"] = events;
  memory["ranks"] = ranks;
  sandbox.write("seen/trace.json", trace.dump());
  sandbox.write("seen/memory.json", memory.dump());
}

TEST(ShowCommand, PlansForTheRanksThatTheRunBeganWith) {
  for (const int lost : {0, 2}) {
    const Sandbox sandbox;
    const Outcome trained =
        sandbox.keel(concat("launch -N 3 --threads ", KEEL_SOURCE_DIR, "/tests/cli/small.yaml", kRun,
                            " batch.global=9 sharding.group=1 outer.type=diloco outer.every=2 "
                            "outer.on_failure=drop log.trace=1"));
    ASSERT_EQ(trained.code, 0) << trained.err;
    const Outcome whole = sandbox.keel("show seen --out whole.html");
    ASSERT_EQ(whole.code, 0) << whole.err;
    EXPECT_EQ(whole.out.find("of them recorded it"), std::string::npos) << whole.out;
    forget_rank(sandbox, lost);
    const Outcome left = sandbox.keel("show seen --out left.html");
    ASSERT_EQ(left.code, 0) << left.err;
    EXPECT_NE(left.out.find(" on 3 ranks, "), std::string::npos) << left.out;
    EXPECT_NE(left.out.find("; 2 of them recorded it, and the plan is that of all"), std::string::npos) << left.out;
    const Json before = data_in(sandbox.read("whole.html")), after = data_in(sandbox.read("left.html"));
    EXPECT_NE(after.at("summary").string().find("2 of them recorded it"), std::string::npos);
    EXPECT_EQ(after.at("plan").dump(), before.at("plan").dump());
    ASSERT_EQ(after.at("planned").items().size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      const std::size_t rank = i + (lost == 0 ? 1 : 0);
      EXPECT_EQ(after.at("ranks").items()[i].at("rank").integer(), static_cast<std::int64_t>(rank));
      EXPECT_EQ(after.at("planned").items()[i].dump(), before.at("planned").items()[rank].dump()) << rank;
    }
    EXPECT_EQ(Json::parse(sandbox.keel("show seen --json").out).at("began").integer(), 3);
  }
}

// What is offloaded on a device lies with the rest on the processor.
TEST(ShowCommand, PlansForTheDeviceOfTheRun) {
  const Sandbox sandbox;
  const std::string wish = concat("launch -N 2 --threads ", KEEL_SOURCE_DIR, "/tests/cli/small.yaml", kRun,
                                  " strategy=zero2-bf16-cpu log.trace=1");
  ASSERT_EQ(sandbox.keel(wish).code, 0);
  const Outcome shown = sandbox.keel("show seen --out page.html");
  ASSERT_EQ(shown.code, 0) << shown.err;
  const Json plan = data_in(sandbox.read("page.html")).at("plan"),
             peaks = record_with(sandbox.read("seen/metrics.jsonl"), "peak_parameter_bytes");
  for (const char* const purpose : {"parameter", "gradient", "optimizer"})
    EXPECT_EQ(plan.at(purpose).integer(), peaks.at(concat("peak_", purpose, "_bytes")).integer()) << purpose;
}

TEST(ShowCommand, FollowsBlocksFromTheirBeginningToTheirEnd) {
  StepRecord record{.step = 7, .begin = 100, .end = 200, .purposes = {"parameter", "activation"}, .ranks = {}};
  RecordedRank rank{.rank = 0, .spans = {}, .changes = {}};
  rank.spans = {{0, 100, 200, "step 7", 0, 0},         {0, 110, 150, "forward", 0, 0},
                {0, 120, 130, "forward h.0", 0, 0},    {1, 130, 140, "all_gather h.0", 64, 48},
                {1, 140, 150, "all_reduce", 8, 8},     {1, 90, 105, "all_gather h.1", 64, 1000},
                {1, 195, 220, "all_gather h.1", 64, 2}};
  rank.changes = {{0, 1000, 0, 0},   {125, 50, 1, 1}, {135, 7, 1, 2}, {140, -50, 1, 1},
                  {145, -100, 0, 0}, {150, 40, 1, 3}, {190, -7, 1, 2}};
  const StepPeak peak = peak_of(record, rank);
  EXPECT_EQ(peak.bytes, 1057);
  EXPECT_EQ(peak.time, 135);
  ASSERT_EQ(peak.alive.size(), 3u);
  EXPECT_EQ(peak.alive[0].since, "before the step");
  EXPECT_EQ(peak.alive[1].since, "forward h.0");
  EXPECT_EQ(peak.alive[1].bytes, 50);
  EXPECT_EQ(peak.alive[1].blocks, 1);
  EXPECT_EQ(peak.alive[2].since, "forward");
  EXPECT_EQ(sent_in(record, rank).of_units, 50) << "what was asked for in the step";
  EXPECT_EQ(sent_in(record, rank).all, 58);
}

TEST(ShowCommand, APeakBeforeTheStepIsNotOfIt) {
  StepRecord record{.step = 2, .begin = 100, .end = 200, .purposes = {"parameter"}, .ranks = {}};
  RecordedRank rank{.rank = 0, .spans = {}, .changes = {{0, 1000, 0, 0}, {50, 500, 0, 1}, {60, -500, 0, 1}}};
  EXPECT_EQ(peak_of(record, rank).bytes, 1000);
  EXPECT_EQ(peak_of(record, rank).time, 100);
}

TEST(ShowCommand, SaysHowAStepIsRecorded) {
  const Sandbox sandbox;
  std::filesystem::create_directories(sandbox / "empty");
  const Outcome none = sandbox.keel("show empty");
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("log.trace=1"), std::string::npos) << none.err;
  EXPECT_NE(sandbox.keel("show nowhere").err.find("not the folder of a run"), std::string::npos);
  const Outcome trained = sandbox.keel(
      concat("train ", KEEL_SOURCE_DIR, "/tests/cli/small.yaml", kRun, " profile.start=2 profile.steps=2"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(Json::parse(sandbox.keel("show seen --step 3 --json").out).at("step").integer(), 3);
  const Outcome other = sandbox.keel("show seen --step 9");
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("steps 2 to 3"), std::string::npos) << other.err;
}

}  // namespace
}  // namespace keel::cli
