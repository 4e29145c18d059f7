#include "keel/trainer/tracker_config.h"

#include <gtest/gtest.h>

#include "keel/runtime/file.h"
#include "keel/trainer/config.h"
#include "keel/trainer/schema.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using testing::error_of;

constexpr std::string_view kBase = "steps: 3\ndata: {type: addition, digits: 2}\n";

Config with(std::string_view tracker) { return parse_config(concat(kBase, tracker), "c.yaml"); }

TEST(TrackerConfig, ReadsListsPartsAndWords) {
  const Config list = with("tracker: [{type: csv, path: a.csv, tags: [team=blue]}, jsonl]\n");
  ASSERT_EQ(list.trackers.size(), 2U);
  EXPECT_EQ(list.trackers[0].type, "csv");
  EXPECT_EQ(list.trackers[0].settings.text("path"), "a.csv");
  EXPECT_EQ(list.trackers[0].settings.texts("tags"), std::vector<std::string>{"team=blue"});
  EXPECT_EQ(list.trackers[1].type, "jsonl");
  EXPECT_EQ(list.trackers[1].settings.text("path"), "tracker.jsonl");
  EXPECT_EQ(with("tracker: csv\n"), with("tracker: [{type: csv}]\n"));
  EXPECT_EQ(with("tracker: {type: csv, path: x}\n"), with("tracker:\n  - type: csv\n    path: x\n"));
  EXPECT_TRUE(with("").trackers.empty());
}

TEST(TrackerConfig, OverridesReplaceAllOfIt) {
  const auto given = [](const std::string& text) {
    return parse_config(concat(kBase, "tracker: [jsonl, csv]\n"), "c.yaml", {text}).trackers;
  };
  EXPECT_EQ(given("tracker=csv"), with("tracker: csv\n").trackers);
  EXPECT_EQ(given("tracker={type: csv, path: x}"), with("tracker: [{type: csv, path: x}]\n").trackers);
  EXPECT_TRUE(given("tracker=[]").empty());
}

TEST(TrackerConfig, IsReadBackAsItIsWritten) {
  for (const std::string_view text :
       {"", "tracker: [csv, jsonl, csv]\n",
        "tracker: {type: command, command: [python3, \"a b, 'c'\", -x], patience: 1.5, name: \"my: run\"}\n"}) {
    const Config config = with(text);
    EXPECT_EQ(parse_config(to_yaml(config), "again.yaml"), config) << to_yaml(config);
  }
}

TEST(TrackerConfig, MistakesAreNamedWithLineAndPlace) {
  const auto mistake = [](std::string_view text) { return error_of([&] { (void)with(text); }); };
  EXPECT_EQ(mistake("tracker:\n  - csv\n  - {type: jsonl, pth: x}\n"),
            "c.yaml:5: tracker[1].pth: jsonl has no such key; did you mean 'path'?");
  EXPECT_EQ(mistake("tracker: [jsonl, csvs]\n").substr(0, 29), "c.yaml:3: tracker[1]: expects");
  EXPECT_TRUE(mistake("tracker: [jsonl, csvs]\n").ends_with("got 'csvs'; did you mean 'csv'?"));
  EXPECT_EQ(mistake("tracker: [{path: x}]\n"), "c.yaml:3: tracker[0]: expects a type, as in {type: jsonl}");
  EXPECT_EQ(mistake("tracker: {type: command}\n"), "c.yaml:3: tracker[0].command: is missing, and has no default");
  EXPECT_EQ(mistake("tracker: {type: command, command: []}\n"),
            "c.yaml:3: tracker: command: command is empty; it names a program and its words, as in [python3, mine.py]");
  EXPECT_EQ(mistake("tracker: {type: csv, tags: [team]}\n"),
            "c.yaml:3: tracker: csv: tags are KEY=VALUE, as in team=blue, and not 'team'");
  EXPECT_EQ(mistake("tracker: {type: csv, every: often}\n"),
            "c.yaml:3: tracker: csv: every expects steps, epochs or a part of the run, such as 500, 0.5 epochs or 10%, "
            "got 'often'");
  EXPECT_EQ(mistake("tracker: {type: command, command: [x], patience: 0}\n"),
            "c.yaml:3: tracker[0].patience: expects a number above 0 to 86400, got '0'");
  EXPECT_EQ(mistake("tracker: [[]]\n"), "c.yaml:3: tracker[0]: expects a type, as in {type: jsonl}");
}

TEST(TrackerConfig, SeveralOfATypeHaveNamesOfTheirOwn) {
  const std::vector<HostedTracker> made =
      make_trackers(with("tracker: [csv, jsonl, {type: csv, name: mine, tags: [a=b=c, d=]}]\n").trackers);
  ASSERT_EQ(made.size(), 3U);
  EXPECT_EQ(made[0].label, "csv");
  EXPECT_EQ(made[1].label, "jsonl");
  EXPECT_EQ(made[2].label, "csv-2");
  EXPECT_EQ(made[2].run_name, "mine");
  EXPECT_TRUE(made[0].every.is_none());
  const std::vector<HostedTracker> thin = make_trackers(
      with("tracker: [{type: csv, every: 20, values: [loss]}, {type: csv, every: 0.5 epochs}]\n").trackers);
  EXPECT_EQ(thin[0].every.steps(), 20);
  EXPECT_EQ(thin[0].values, std::vector<std::string>{"loss"});
  EXPECT_EQ(thin[1].every.epochs(), 0.5);
  const std::vector<std::pair<std::string, std::string>> tags = {{"a", "b=c"}, {"d", ""}};
  EXPECT_EQ(made[2].tags, tags);
}

TEST(TrackerConfig, EveryTypeStandsOnThePage) {
  EXPECT_EQ(read_text_file(KEEL_SOURCE_DIR "/docs/trackers.md"), tracker_reference())
      << "run `build/keel docs trackers >docs/trackers.md`";
  for (const TrackerEntry& entry : trackers())
    EXPECT_NE(tracker_reference().find(concat("\n## ", entry.name, "\n")), std::string::npos) << entry.name;
}

}  // namespace
}  // namespace keel
