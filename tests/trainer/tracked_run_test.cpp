// Runs with trackers.

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(read_text_file(path));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// The records of metrics.jsonl as a tracker has them.
std::vector<nlohmann::json> records_of(const std::string& run) {
  std::vector<nlohmann::json> records;
  for (const nlohmann::json& event : lines_of(run + "/tracker.jsonl")) {
    if (event["event"] != "record") continue;
    records.push_back(event["values"]);
    records.back()["step"] = event["step"];
  }
  return records;
}

TEST(TrackedRun, TellsTrackersWhatItWritesDown) {
  const TemporaryFolder folder;
  const Config config = small_run(folder, "run", {"tracker=jsonl"});
  Recorder recorder;
  train(config, recorder);
  EXPECT_EQ(records_of(config.run), lines_of(RunFolder(config.run).metrics()));
  const auto events = lines_of(config.run + "/tracker.jsonl");
  EXPECT_EQ(events.front()["name"], "run");
  EXPECT_EQ(events.front()["config"], to_yaml(config));
  EXPECT_EQ(events.front()["settings"]["optimizer.lr"], 1e-2);
  EXPECT_EQ(events.front()["tags"]["keel.ranks"], "1");
  EXPECT_EQ(events.back()["status"], "finished");
  std::vector<std::string> paths;
  for (const nlohmann::json& event : events)
    if (event["event"] == "artifact") paths.push_back(event["path"]);
  const RunFolder run(config.run);
  const std::vector<std::string> expected = {run.config(), run.checkpoint(5), run.checkpoint(10), run.checkpoint(12),
                                             run.model()};
  EXPECT_EQ(paths, expected);
}

TEST(TrackedRun, GivesTheBitsOfOneWithoutTrackers) {
  const TemporaryFolder folder;
  const Config plain = small_run(folder, "plain"),
               tracked = small_run(
                   folder, "tracked",
                   {"tracker=[jsonl, csv, {type: command, command: [\"false\"]}, {type: csv, path: /proc/x}]"});
  for (const int ranks : {1, 2}) {
    std::filesystem::remove_all(plain.run);
    std::filesystem::remove_all(tracked.run);
    train_by(ranks, plain);
    const auto recorders = train_by(ranks, tracked);
    EXPECT_EQ(testing::weights_of(tracked), testing::weights_of(plain));
    for (const std::string failed : {"tracker command: ", "tracker csv-2: "}) {
      const std::string& messages = recorders.front()->messages;
      const std::size_t at = messages.find(failed);
      EXPECT_NE(at, std::string::npos) << failed;
      EXPECT_EQ(messages.find(failed, at + 1), std::string::npos) << messages;
    }
    EXPECT_EQ(records_of(tracked.run).size(), 12U + 3 + 1);  // steps, evaluations, memory
    if (ranks == 2) { EXPECT_EQ(recorders.back()->messages.find("tracker"), std::string::npos); }
  }
}

TEST(TrackedRun, ThinsWhatTrackersGetAlsoWhereItGoesOn) {
  const TemporaryFolder folder;
  const std::string tracker = "tracker={type: jsonl, every: 5, values: [loss, \"*eval*\", \"*validation*\"]}";
  const Config whole = small_run(folder, "whole", {tracker, "log.every=2"});
  train_by(1, whole);
  std::vector<std::int64_t> steps;
  for (const nlohmann::json& record : records_of(whole.run)) {
    EXPECT_FALSE(record.contains("lr") || record.contains("peak_total_bytes")) << record;
    if (record.contains("loss")) steps.push_back(record["step"]);
  }
  // Records are of 2, 4, ..., 12, the last step: 6 is the first behind 5.
  EXPECT_EQ(steps, (std::vector<std::int64_t>{6, 10, 12}));
  EXPECT_EQ(records_of(whole.run).size(), 3u + 3);  // evaluations come in any case
  const Config cut = small_run(folder, "cut", {tracker, "log.every=2", "resume=auto"});
  train_by(1, cut, 7);
  train_by(1, cut);
  EXPECT_EQ(records_of(cut.run), records_of(whole.run));
}

TEST(TrackedRun, GoesOnInTheSameFiles) {
  const TemporaryFolder folder;
  const Config whole = small_run(folder, "whole", {"tracker=[jsonl, csv]"});
  train_by(1, whole);
  const Config first = small_run(folder, "run", {"tracker=[jsonl, csv]", "resume=auto"});
  train_by(1, first, 7);
  EXPECT_EQ(lines_of(first.run + "/tracker.jsonl").back()["status"], "killed");
  // What is behind the checkpoint of step 5 is told again.
  std::filesystem::remove_all(RunFolder(first.run).checkpoint(7));
  train_by(1, first);
  const auto losses = [](const Config& config) {
    std::vector<double> all;
    for (const nlohmann::json& record : records_of(config.run))
      if (record.contains("loss")) all.push_back(record["loss"]);
    return all;
  };
  EXPECT_EQ(losses(first), losses(whole));
  const auto rows = [](const Config& config) {
    const std::string text = read_text_file(config.run + "/tracker.csv");
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(rows(first), rows(whole));
}

TEST(TrackedRun, ThatFailsSaysSo) {
  const TemporaryFolder folder;
  const Config config = small_run(folder, "run", {"tracker=jsonl"});
  struct Throws : Recorder {
    void on_step(const StepReport& report) override {
      if (report.step == 6) throw Error("the observer has had enough");
    }
  } throws;
  EXPECT_THROW(train(config, throws), Error);
  EXPECT_EQ(lines_of(config.run + "/tracker.jsonl").back()["status"], "failed");
}

}  // namespace
}  // namespace keel
