// Keys that a task brings beside keel's own: one parser, one file, one comparison, one page.

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "keel/config/changes.h"
#include "keel/config/pages.h"
#include "keel/tasks/language.h"
#include "keel/trainer/schema.h"
#include "tests/error_of.h"
#include "tests/names_of.h"
#include "tests/trainer/config_mistakes.h"
#include "tests/trainer/language_schema.h"

namespace keel {
namespace {

using testing::language_schema;
using testing::with;

const KeyRow kTasksRows[] = {{"task.digits", KeyType::integer, "3", "As data.digits.", 1, 9},
                             {"task.validation", KeyType::number, "0.1", "As data.validation.", 0, 0.5},
                             {"task.bias", KeyType::flag, "true", "As model.bias."},
                             {"task.path", KeyType::path, "x", "As run."},
                             {"model.experts", KeyType::integers, "[2, 2]", "Experts of each block.", 1},
                             {"data.stride", KeyType::integer, "=steps", "Tokens between two windows.", 1}};

// A task that has the keys of `language` as well.
const std::shared_ptr<const ConfigKeys>& with_task() {
  static const std::shared_ptr<const ConfigKeys> keys = [] {
    TaskEntry own = language_task();
    own.name = "own";
    own.rows.insert(own.rows.end(), std::begin(kTasksRows), std::end(kTasksRows));
    return std::make_shared<const ConfigKeys>(std::span(&own, 1));
  }();
  return keys;
}
const Schema& own_schema() { return with_task()->schema("own"); }

std::string message_about(const std::shared_ptr<const ConfigKeys>& schema, std::string_view yaml,
                          const std::vector<std::string>& overrides = {}) {
  try {
    parse_config(schema, yaml, "c.yaml", overrides);
  } catch (const Error& error) { return error.what(); }
  return "";
}

std::string renamed(std::string text, std::string_view part, std::string_view by) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + by.size()))
    text.replace(at, part.size(), by);
  return text;
}

// Strategies that a program brings, with the first thing that is wrong with each.
TEST(OwnKeys, OfStrategiesAreRefusedWithAllThatIsWrong) {
  const auto nothing = [](const Settings&) { return std::unique_ptr<CommunicationStrategy>(); };
  const auto refusal = [](const std::vector<StrategyEntry>& own) {
    return testing::error_of([&] { (void)ConfigKeys({}, own); });
  };
  EXPECT_EQ(refusal({{.name = "gossip", .summary = "x", .rows = {{.key = "outer.pairs"}}, .make = nothing}}), "");
  for (const std::string_view name : {"", "none", "diloco"})
    EXPECT_EQ(refusal({{.name = name, .summary = "x", .make = nothing}}),
              concat("strategy '", name, "': its name is taken, or is none"));
  EXPECT_EQ(
      refusal({{.name = "twice", .summary = "x", .make = nothing}, {.name = "twice", .summary = "x", .make = {}}}),
      "strategy 'twice': its name is taken, or is none\nstrategy 'twice': nothing makes it");
  for (const std::string_view key : {"pairs", "outer.type", "outer.on_failure"})
    EXPECT_EQ(refusal({{.name = "gossip", .summary = "x", .rows = {{.key = key}}, .make = nothing}}),
              concat("strategy 'gossip': the key ", key, " is not one of its own in the section outer"));
}

TEST(OwnKeys, AreToldWhatKeelsOwnKeysAreTold) {
  const std::pair<std::string, std::string> pairs[] = {
      {"data.digits", "task.digits"}, {"model.bias", "task.bias"}, {"run", "task.path"}};
  for (const auto& [keels, tasks] : pairs)
    for (const char* value : {"x",
                              "0",
                              "10",
                              "-1",
                              "1e9",
                              "2.5",
                              "nan",
                              "true",
                              "yes",
                              "'3'",
                              "''",
                              "",
                              "[3]",
                              "[",
                              "{a: 1}",
                              "\"a\\tb\"",
                              "&a 3",
                              "!!int 3",
                              "9007199254740993",
                              "null"}) {
      const std::string line = concat(keels, '=', value), other = concat(tasks, '=', value);
      const std::string expected = message_about(with_task(), with(""), {line}),
                        got = message_about(with_task(), with(""), {other});
      // A key of no section is none that a mapping opens.
      if (std::string_view(value) == "{a: 1}" && keels == "run") continue;
      EXPECT_EQ(got, renamed(expected, keels, tasks)) << other;
    }
  EXPECT_EQ(message_about(with_task(), "steps: 1\ndata: {type: addition}\ntask:\n  bias: true\n  digits: 10"),
            "c.yaml:5: task.digits: expects a whole number from 1 to 9, got '10'");
  EXPECT_EQ(message_about(with_task(), with("task: {bais: true}")),
            "c.yaml:3: unknown key 'task.bais', did you mean 'task.bias'?");
  EXPECT_EQ(message_about(with_task(), with("model: {expert: [1]}")),
            "c.yaml:3: unknown key 'model.expert', did you mean 'model.experts'?");
}

TEST(OwnKeys, StandInTheResolvedFileWhichGivesTheSameConfigBack) {
  const Config config =
      parse_config(with_task(), with("task: {digits: 4}\nmodel: {layers: 2}"), "c", {"model.experts=[4]"});
  EXPECT_EQ(config.integer("task.digits"), 4);
  EXPECT_EQ(config.integers("model.experts"), std::vector<std::int64_t>{4});
  EXPECT_EQ(config.integer("data.stride"), 100);
  EXPECT_EQ(config.integer("model.layers"), 2);
  const std::string yaml = to_yaml(config);
  EXPECT_EQ(parse_config(config.keys, yaml, "again"), config) << yaml;
  EXPECT_NE(yaml.find("\n  experts: [4]\ndata:\n"), std::string::npos) << yaml;
  // Whoever reads it without the task's keys is told so.
  EXPECT_NE(
      message_about(keel_keys(), yaml).find(concat("task.type: expects ", testing::task_names(" or "), ", got 'own'")),
      std::string::npos);
  EXPECT_NE(config, parse_config(with_task(), yaml, "c", {"task.digits=5"}));
  EXPECT_NE(parse_config(with_task(), with(""), "c"), parse_config(with(""), "c"));
}

TEST(OwnKeys, ThatDifferAreComparedAsKeelsAre) {
  const auto changed = [](const std::vector<std::string>& overrides, OnResume kind) {
    std::string keys;
    for (const ConfigChange& each : changes_between(own_schema(), parse_config(with_task(), with(""), "c"),
                                                    parse_config(with_task(), with(""), "c", overrides), kind))
      keys += concat(keys.empty() ? "" : " ", each.key, '=', each.now);
    return keys;
  };
  const std::vector<std::string> overrides = {"model.experts=[5]", "model.layers=7", "task.digits=5", "seed=5"};
  EXPECT_EQ(changed(overrides, OnResume::refuses), "model.layers=7 model.experts=[5]");
  EXPECT_EQ(changed(overrides, OnResume::warns), "seed=5 task.digits=5 data.seed=5");
}

bool names_tasks(const std::string& line) { return line.starts_with("| `task.type` |"); }

TEST(OwnKeys, AddTheirLinesToThePageAndChangeNoOther) {
  std::string page = key_tables(own_schema());
  const std::string alone = key_tables(language_schema());
  std::size_t added = 0;
  std::istringstream lines(page);
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    const bool is_own = std::any_of(std::begin(kTasksRows), std::end(kTasksRows),
                                    [&](const KeyRow& row) { return line.starts_with(concat("| `", row.key, "` |")); });
    added += is_own ? 1 : 0;
    if (!is_own && !line.empty() && !names_tasks(line)) rest += line + '\n';
  }
  EXPECT_EQ(added, std::size(kTasksRows));
  std::istringstream keels(alone);
  std::string expected;
  for (std::string line; std::getline(keels, line);) {
    if (!line.empty() && !names_tasks(line)) expected += line + '\n';
  }
  EXPECT_EQ(rest, expected);
}

}  // namespace
}  // namespace keel
