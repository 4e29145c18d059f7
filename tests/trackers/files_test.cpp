// The trackers that write files of text: jsonl and csv.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "keel/runtime/file.h"
#include "keel/trainer/trackers/json_events.h"
#include "tests/temporary_folder.h"
#include "tests/trackers/session.h"

namespace keel {
namespace {

using testing::description_in;
using testing::resumed_in;
using testing::TrackedSession;
using Told = std::vector<std::string>;

// The lines of a file, without the time in them.
std::vector<nlohmann::json> events_of(const std::string& path) {
  std::vector<nlohmann::json> events;
  std::istringstream lines(read_text_file(path));
  for (std::string line; std::getline(lines, line);) events.push_back(nlohmann::json::parse(line));
  for (nlohmann::json& event : events) event.erase("time");
  return events;
}

// Rows of RFC 4180's format as a reader of its own sees them, without the column of times.
std::vector<std::vector<std::string>> table_of(const std::string& path) {
  std::vector<std::vector<std::string>> rows(1, std::vector<std::string>(1));
  const std::string text = read_text_file(path);
  bool is_quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string& cell = rows.back().back();
    if (is_quoted && text[i] == '"' && text[i + 1] == '"') cell += text[++i];
    else if (text[i] == '"') is_quoted = !is_quoted;
    else if (is_quoted || (text[i] != ',' && text[i] != '\n')) cell += text[i];
    else if (text[i] == ',') rows.back().emplace_back();
    else rows.emplace_back(1);
  }
  rows.pop_back();
  for (std::vector<std::string>& row : rows) row.erase(row.begin() + 1);
  return rows;
}

struct TrackerFiles : ::testing::Test {
  testing::TemporaryFolder folder;
  RunDescription run = description_in(folder.path());
  std::string jsonl = folder / "tracker.jsonl", csv = folder / "tracker.csv";
};

TEST_F(TrackerFiles, JsonlHasEverythingThatATrackerIsTold) {
  TrackedSession session("jsonl", {}, run);
  session.log(1, {{"loss", 2.5}, {"tokens", std::int64_t{768}}, {"phase", "warm-up"}, {"norm", NAN}});
  session->text("note", "two\nlines");
  session->artifact("model", "/runs/try/model.safetensors");
  EXPECT_EQ(session.end(RunStatus::killed), Told{});
  const std::vector<nlohmann::json> expected = {
      {{"event", "start"},
       {"name", "try"},
       {"folder", folder.path()},
       {"resumed", false},
       {"step", 0},
       {"tags", {{"keel.version", "0.1.0"}}},
       {"settings", {{"seed", 1}, {"optimizer.lr", 3e-4}, {"optimizer.type", "AdamW"}, {"cuda_graph", false}}},
       {"config", "seed: 1\nsteps: 20\n"}},
      {{"event", "record"},
       {"step", 1},
       {"values",
        {{"loss", 2.5}, {"tokens", 768}, {"phase", "warm-up"}, {"norm", nullptr}, {"nonfinite", {{"norm", "nan"}}}}}},
      {{"event", "text"}, {"name", "note"}, {"text", "two\nlines"}},
      {{"event", "artifact"}, {"name", "model"}, {"path", "/runs/try/model.safetensors"}},
      {{"event", "end"}, {"status", "killed"}}};
  EXPECT_EQ(events_of(jsonl), expected);
}

TEST(JsonOfSettings, IsANumberOrAFlagWhereTheWholeTextIsOne) {
  for (const char* text :
       {"", "x", "1x", "1 ", " 1", "+1", "0x10", "1e400", "-1e400", "nan", "inf", "-inf", "True", "[1]", "null"}) {
    const Json json = json_of_setting(text);
    ASSERT_TRUE(json.is_string()) << text;
    EXPECT_EQ(json.string(), text);
  }
  for (const auto& [text, whole] : {std::pair("0", std::int64_t{0}), {"-7", -7}, {"9223372036854775807", INT64_MAX}}) {
    ASSERT_TRUE(json_of_setting(text).is_integer()) << text;
    EXPECT_EQ(json_of_setting(text).integer(), whole);
  }
  for (const auto& [text, number] :
       {std::pair("0.5", 0.5), {"1e-3", 1e-3}, {"-2.", -2.0}, {"9223372036854775808", 0x1p63}}) {
    const Json json = json_of_setting(text);
    ASSERT_TRUE(json.is_number() && !json.is_integer()) << text;
    EXPECT_EQ(json.number(), number);
  }
  for (const bool flag : {false, true}) EXPECT_EQ(json_of_setting(flag ? "true" : "false").boolean(), flag);
}

TEST_F(TrackerFiles, JsonlGoesOnBehindTheStepOfTheCheckpoint) {
  TrackedSession first("jsonl", {}, run);
  for (int step = 1; step <= 4; ++step) first.log(step, {{"loss", 1.0 * step}});
  first.end(RunStatus::failed);
  write_text_file(jsonl, read_text_file(jsonl) + "{\"event\":\"rec");  // a crash
  TrackedSession second("jsonl", {}, resumed_in(folder.path(), 2));
  second.log(3, {{"loss", 30.0}});
  EXPECT_EQ(second.end(), Told{});
  std::vector<std::string> seen;
  for (const nlohmann::json& event : events_of(jsonl))
    seen.push_back(event["event"] == "record" ? event["values"]["loss"].dump() : event["event"].get<std::string>());
  const std::vector<std::string> expected = {"start", "1.0", "2.0", "end", "start", "30.0", "end"};
  EXPECT_EQ(seen, expected);
}

TEST_F(TrackerFiles, CsvHasARowForEachRecordAndAColumnForEachName) {
  TrackedSession session("csv", {}, run);
  session.log(1, {{"loss", 0.1}, {"a,b", 1e300}, {"x", INFINITY}, {"y", -INFINITY}, {"z", NAN}});
  session.log(2, {{"loss", 2.0}, {"phase", "says \"a, b\"\nand c"}, {"tokens", std::int64_t{1} << 60}});
  session.log(2, {{"valid/loss", 3.25}});
  EXPECT_EQ(session.end(), Told{});
  const std::vector<std::vector<std::string>> expected = {
      {"step", "loss", "a,b", "x", "y", "z", "phase", "tokens", "valid/loss"},
      {"1", "0.1", "1e+300", "inf", "-inf", "nan", "", "", ""},
      {"2", "2", "", "", "", "", "says \"a, b\"\nand c", "1152921504606846976", ""},
      {"2", "", "", "", "", "", "", "", "3.25"}};
  EXPECT_EQ(table_of(csv), expected);
}

TEST_F(TrackerFiles, CsvGoesOnBehindTheStepOfTheCheckpoint) {
  TrackedSession first("csv", {}, run);
  for (int step = 1; step <= 12; ++step) first.log(step, {{"note", "a\nb"}, {"loss", 1.0 * step}});
  first.end(RunStatus::failed);
  write_text_file(csv, read_text_file(csv) + "13,17.");  // a crash
  TrackedSession second("csv", {}, resumed_in(folder.path(), 2));
  second.log(3, {{"loss", 30.0}, {"more", 1.0}});
  EXPECT_EQ(second.end(), Told{});
  const std::vector<std::vector<std::string>> expected = {
      {"step", "note", "loss", "more"}, {"1", "a\nb", "1", ""}, {"2", "a\nb", "2", ""}, {"3", "", "30", "1"}};
  EXPECT_EQ(table_of(csv), expected);
}

TEST_F(TrackerFiles, CsvFindsTheColumnsOfEveryNameAgain) {
  const std::vector<std::string> names = {"plain",   "a,b",    "\"",         "\"\"", "says \"no\"",
                                          "\"first", "last\"", "two\nlines", ""};
  std::vector<std::string> head = {"step"};
  head.insert(head.end(), names.begin(), names.end());
  for (int step = 1; step <= 3; ++step) {
    TrackedSession session("csv", {}, step == 1 ? run : resumed_in(folder.path(), step - 1));
    std::vector<Logged> values;
    for (const std::string& name : names) values.push_back({name, std::int64_t{step}});
    session.log(step, values);
    EXPECT_EQ(session.end(), Told{});
    const std::vector<std::vector<std::string>> rows = table_of(csv);
    EXPECT_EQ(rows.front(), head);
    ASSERT_EQ(rows.size(), static_cast<std::size_t>(step) + 1);
    EXPECT_EQ(rows.back(), std::vector<std::string>(names.size() + 1, std::to_string(step)));
  }
}

TEST_F(TrackerFiles, LieWhereTheSettingsSay) {
  for (const std::string type : {"jsonl", "csv"}) {
    TrackedSession(type, {{"path", "deep/in/<name>.txt"}}, run).end();
    EXPECT_TRUE(std::filesystem::exists(folder / "deep/in/try.txt")) << type;
    std::filesystem::remove_all(folder / "deep");
    TrackedSession(type, {{"path", folder / "full.txt"}}, run).end();
    EXPECT_TRUE(std::filesystem::exists(folder / "full.txt")) << type;
    std::filesystem::remove_all(folder / "full.txt");
  }
}

TEST_F(TrackerFiles, OfOthersAreLeftAlone) {
  for (const std::string type : {"jsonl", "csv"}) {
    write_text_file(folder / "theirs", "precious");
    const Told told = TrackedSession(type, {{"path", "theirs"}}, run).end();
    ASSERT_EQ(told.size(), 1U);
    EXPECT_NE(told[0].find("theirs' is there already, and is left alone"), std::string::npos) << told[0];
    EXPECT_EQ(read_text_file(folder / "theirs"), "precious");
  }
  const Told told = TrackedSession("csv", {{"path", "theirs"}}, resumed_in(folder.path(), 1)).end();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("does not begin with the columns step and time"), std::string::npos) << told[0];
  EXPECT_EQ(read_text_file(folder / "theirs"), "precious");
}

// Columns, rows and cells of a file that a session goes on with, as they are.
TEST_F(TrackerFiles, CsvGoesOnWithWhatIsThere) {
  const auto goes_on = [&](const std::string& before, std::int64_t step) {
    write_text_file(csv, before);
    try {
      testing::make_tracker("csv")->begin(resumed_in(folder.path(), step));
    } catch (const Error& error) {
      const std::string text = error.what();
      return text.substr(text.rfind("' does") + 1);
    }
    return read_text_file(csv);
  };
  EXPECT_EQ(goes_on("step,time\n", 3), "step,time\n");
  EXPECT_EQ(goes_on("", 3), "step,time\n");
  EXPECT_EQ(goes_on("step,time,a,\"b,\"\"c\"\n1,0.5,x,\"1\n2\"\n3,1.5,,y\n4,2,,\n", 3),
            "step,time,a,\"b,\"\"c\"\n1,0.5,x,\"1\n2\"\n3,1.5,,y\n");
  EXPECT_EQ(goes_on("step,time,a\n0,1,2\n1,2,3\n", 0), "step,time,a\n0,1,2\n");
  EXPECT_EQ(goes_on("step,time\nnone,1\n1,2\n", 0), "step,time\nnone,1\n");
  const std::string refusal = " does not begin with the columns step and time; move it away";
  for (const std::string other :
       {"step\n", "step,loss\n", "time,step\n", "time,time\n", "a,time,b\n", "step,time", "\n"})
    EXPECT_EQ(goes_on(other, 3), refusal) << other;
}

TEST_F(TrackerFiles, CsvHasCellsOfTheirOwnForEachNameThatComesLater) {
  const std::unique_ptr<Tracker> tracker = testing::make_tracker("csv");
  tracker->begin(run);
  const auto log = [&](std::int64_t step, double seconds, std::vector<Logged> values) {
    tracker->log(step, seconds, values);
    return read_text_file(csv);
  };
  EXPECT_EQ(log(1, 0.25, {{"a", 1.5}}), "step,time,a\n1,0.250,1.5\n");
  EXPECT_EQ(log(2, 1e3, {{"c", std::int64_t{-3}}, {"b", "x\r"}}),
            "step,time,a,c,b\n1,0.250,1.5,,\n2,1000.000,,-3,\"x\r\"\n");
  EXPECT_EQ(log(2, 2, {{"b", "\""}}), "step,time,a,c,b\n1,0.250,1.5,,\n2,1000.000,,-3,\"x\r\"\n2,2.000,,,\"\"\"\"\n");
  EXPECT_EQ(log(3, 3, {{"d,", 1.0}}),
            "step,time,a,c,b,\"d,\"\n1,0.250,1.5,,,\n2,1000.000,,-3,\"x\r\",\n2,2.000,,,\"\"\"\",\n3,3.000,,,,1\n");
}

// A disk that takes so many bytes of a file, for this process, while the object lives.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit small = before_;
    small.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(TrackerFiles, OnAFullDiskAreToldOnceAndHoldWholeRows) {
  for (const std::string type : {"jsonl", "csv"}) {
    const SmallDisk disk(700);
    TrackedSession session(type, {}, run);
    for (int step = 1; step <= 100; ++step) session.log(step, {{"loss", 1.0 * step}});
    const Told told = session.end();
    ASSERT_EQ(told.size(), 1U) << type;
    EXPECT_NE(told[0].find("No space left on device"), std::string::npos) << told[0];
    const std::string text = read_text_file(type == "csv" ? csv : jsonl);
    EXPECT_GT(text.size(), 400U);
    EXPECT_EQ(text.back(), '\n');
  }
}

}  // namespace
}  // namespace keel
