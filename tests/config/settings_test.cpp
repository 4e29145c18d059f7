// Keys that a task brings: read, checked, written and told of as keel's own are.

#include "keel/config/settings.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "keel/config/changes.h"
#include "keel/config/pages.h"
#include "keel/config/resolver.h"

namespace keel {
namespace {

using Texts = std::vector<std::pair<std::string, std::string>>;

KeyRow choice(std::string_view key, std::string_view standard, std::string_view choices) {
  KeyRow row = {key, KeyType::choice, standard, "Which."};
  row.choices = choices;
  return row;
}
KeyRow when(KeyRow row, std::string_view key, std::string_view values) {
  row.when_key = key;
  row.when_values = values;
  return row;
}
KeyRow known_as(KeyRow row, std::string_view words) {
  row.known_as = words;
  return row;
}
KeyRow ignored(KeyRow row) {
  row.on_resume = ResumeRule::ignores;
  return row;
}

const KeyParts kHeads = {
    "a head",
    {{"name", KeyType::text, "", "What it predicts."}, {"weight", KeyType::number, "1", "Of its loss.", 0, 100}}};
KeyRow with_parts(KeyRow row, const KeyParts& parts) {
  row.parts = &parts;
  return row;
}

const KeyRow kRows[] = {
    choice("task.kind", "small", "small|large|named"),
    {"task.strict", KeyType::flag, "false", "Whether it is."},
    known_as({"task.classes", KeyType::integer, "", "Classes to tell apart.", 2, 1000}, "num_labels|labels"),
    {"task.smoothing", KeyType::number, "0.1", "Label smoothing.", 0, 0.5},
    {"task.title", KeyType::text, "none", "What it is called."},
    when({"task.teacher", KeyType::path, "teacher.safetensors", "A file."}, "task.kind", "named"),
    {"model.sizes", KeyType::integers, "[8, 4]", "Units of each layer.", 1, 4096},
    {"model.rates", KeyType::numbers, "[]", "Dropout of each layer.", 0, 1},
    {"model.names", KeyType::texts, "[a, b c]", "Of the layers."},
    with_parts({"model.heads", KeyType::parts, "[]", "What is predicted."}, kHeads),
    when({"model.width", KeyType::integer, "64", "Width.", 1}, "task.kind", "small"),
    when({"model.width", KeyType::integer, "512", "Width.", 1}, "task.kind", "large|named"),
    ignored({"data.classes", KeyType::integer, "=task.classes", "Classes of the data.", 1}),
};
constexpr std::pair<std::string_view, std::string_view> kOk[] = {{"task.classes", "3"}};

Texts given(std::initializer_list<std::pair<std::string_view, std::string_view>> more) {
  Texts texts;
  for (const auto& [key, text] : kOk) texts.emplace_back(key, text);
  for (const auto& [key, text] : more) texts.emplace_back(key, text);
  return texts;
}

// The message of the Error that a file with these keys gives; empty: it is read into `settings`.
std::string told(const Schema& schema, std::string_view yaml, Settings& settings) {
  try {
    Resolver resolver(schema, settings, "c.yaml", "command line");
    resolver.add_file(yaml);
    resolver.resolve();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return "";
}
std::string told(std::string_view yaml) {
  Settings settings;
  return told(Schema(schema_rows(kRows)), yaml, settings);
}

TEST(Settings, HaveADefaultOrTheGivenValueOfEveryKeyThatApplies) {
  const Settings standard(kRows, given({}));
  EXPECT_EQ(standard.text("task.kind"), "small");
  EXPECT_FALSE(standard.flag("task.strict"));
  EXPECT_EQ(standard.integer("task.classes"), 3);
  EXPECT_EQ(standard.number("task.smoothing"), 0.1);
  EXPECT_EQ(standard.integers("model.sizes"), (std::vector<std::int64_t>{8, 4}));
  EXPECT_TRUE(standard.numbers("model.rates").empty());
  EXPECT_EQ(standard.texts("model.names"), (std::vector<std::string>{"a", "b c"}));
  EXPECT_EQ(standard.integer("model.width"), 64);
  EXPECT_EQ(standard.integer("data.classes"), 3);

  const Settings other(kRows, given({{"task.kind", "named"},
                                     {"task.teacher", "a b"},
                                     {"model.rates", "[0.5, 1]"},
                                     {"task.title", "\"5: x\""},
                                     {"data.classes", "7"},
                                     {"task.strict", "true"}}));
  EXPECT_EQ(other.integer("model.width"), 512);
  EXPECT_EQ(other.text("task.teacher"), "a b");
  EXPECT_EQ(other.numbers("model.rates"), (std::vector<double>{0.5, 1}));
  EXPECT_EQ(other.text("task.title"), "5: x");
  EXPECT_EQ(other.integer("data.classes"), 7);
  EXPECT_TRUE(other.flag("task.strict"));
}

TEST(Settings, KeepTheLastValueThatIsSet) {
  const std::vector<SchemaRow> rows = schema_rows(kRows);
  Settings settings, once;
  for (const char* text : {"3", "5"}) set_value(rows[2], settings, YamlNode::scalar(text));
  set_value(rows[2], once, YamlNode::scalar("5"));
  EXPECT_EQ(settings.integer("task.classes"), 5);
  EXPECT_EQ(settings, once);
  EXPECT_NE(settings, Settings());
}

TEST(Settings, WrittenAsYamlReadBackAsTheSame) {
  const Schema schema(schema_rows(kRows));
  for (const Texts& texts : {given({}), given({{"task.kind", "large"}, {"task.smoothing", "0.30000000000000004"}}),
                             given({{"task.title", "'null'"}, {"model.names", "['', '-1', \"a\\\"b\", \"[x, y]\"]"}}),
                             given({{"task.kind", "named"}, {"task.teacher", "\"x: #y\""}, {"model.sizes", "[]"}})}) {
    const Settings settings(kRows, texts);
    const std::string yaml = to_yaml(schema, settings);
    Settings again;
    EXPECT_EQ(told(schema, yaml, again), "") << yaml;
    EXPECT_EQ(again, settings) << yaml;
    EXPECT_EQ(to_yaml(schema, again), yaml);
  }
}

TEST(Settings, WhatDependsOnAFixedRowIsWrittenAsWell) {
  KeyRow decided = when(choice("task.size", "given", "given"), "task.kind", "small");
  decided.fixed = true;
  const KeyRow rows[] = {choice("task.kind", "small", "small|large"), decided,
                         when(choice("task.size", "a", "a|b"), "task.kind", "large"),
                         when({"task.length", KeyType::integer, "8", "Of small ones."}, "task.size", "given"),
                         when({"task.length", KeyType::integer, "9", "Of large ones."}, "task.size", "a|b")};
  const Schema schema(schema_rows(rows));
  const Settings settings(rows, Texts{{"task.length", "5"}});
  EXPECT_EQ(to_yaml(schema, settings), "task:\n  kind: small\n  length: 5\n");
  Settings again;
  EXPECT_EQ(told(schema, to_yaml(schema, settings), again), "");
  EXPECT_EQ(again, settings);
}

// What the user wrote is named, not the choice that follows from it.
TEST(Settings, AKeyThatADecidedRowRulesOutIsToldWithWhatDecidesIt) {
  KeyRow decided = when(choice("task.size", "given", "given"), "task.kind", "small");
  decided.fixed = true;
  const KeyRow rows[] = {choice("task.kind", "small", "small|large"), decided,
                         when(choice("task.size", "a", "a|b"), "task.kind", "large"),
                         when({"task.length", KeyType::integer, "9", "Of large ones."}, "task.size", "a")};
  const Schema schema(schema_rows(rows));
  Settings settings;
  EXPECT_EQ(told(schema, "task: {kind: small, length: 3}", settings),
            "c.yaml:1: task.length: does not apply where task.kind is small, which says it itself; remove one of the "
            "two");
  EXPECT_EQ(told(schema, "task: {kind: large, length: 3}", settings), "");
  EXPECT_EQ(told(schema, "task: {kind: large, size: b, length: 3}", settings),
            "c.yaml:1: task.length: applies only when task.size is a, and task.size is b; remove one of the two");
}

TEST(Settings, EveryKindOfWrongValueGetsOneLineWithItsPlace) {
  const std::pair<std::string, std::string> cases[] = {
      {"kind: smal", "task.kind: expects small, large or named, got 'smal'; did you mean 'small'?"},
      {"strict: yes", "task.strict: expects true or false, got 'yes'"},
      {"strict: 'true'", "task.strict: expects true or false, got 'true' in quotes, which make it a text"},
      {"smoothing: 0.6", "task.smoothing: expects a number from 0 to 0.5, got '0.6'"},
      {"smoothing: nan", "task.smoothing: expects a number from 0 to 0.5, got 'nan'"},
      {"smoothing: [0.1]", "task.smoothing: expects a number from 0 to 0.5, got a list"},
      {"smoothing: {a: 1}", "task.smoothing: expects a number from 0 to 0.5, got a mapping"},
      {"smoothing:", "task.smoothing: expects a number from 0 to 0.5, got nothing"},
      {"title: [a]", "task.title: expects a text, got a list"},
      {"title: \"a\\tb\"", "task.title: has characters that cannot be shown"},
      {"kind: named\n  teacher: ''", "task.teacher: is empty"},
      {"teacher: x",
       "task.teacher: applies only when task.kind is named, and task.kind is small; remove one of the two"},
      {"clases: 4", "unknown key 'task.clases', did you mean 'task.classes'?"},
      {"num_labels: 4", "unknown key 'task.num_labels', did you mean 'task.classes'?"},
      {"kind: small\n  kind: large", "key 'kind' is given twice, first on line 3"},
      {"zzzzzzzz: 1", "unknown key 'task.zzzzzzzz'; task has kind, strict, classes, smoothing, title, teacher"},
  };
  for (const auto& [lines, message] : cases) {
    const auto line = 3 + std::count(lines.begin(), lines.end(), '\n');
    EXPECT_EQ(told("task:\n  classes: 3\n  " + lines), concat("c.yaml:", line, ": ", message)) << lines;
  }
  const std::pair<std::string, std::string> lists[] = {
      {"sizes: 4", "model.sizes: expects a list, each a whole number from 1 to 4096, got '4'"},
      {"sizes: [4, 0]", "model.sizes: expects a list, each a whole number from 1 to 4096, got '0'"},
      {"sizes: [4, x]", "model.sizes: expects a list, each a whole number from 1 to 4096, got 'x'"},
      {"rates: [0.5, [1]]", "model.rates: expects a list, each a number from 0 to 1, got a list"},
      {"rates: {a: 1}", "model.rates: expects a list, each a number from 0 to 1, got a mapping"},
      {"names: [a, ]\n  rates: [2]", "model.rates: expects a list, each a number from 0 to 1, got '2'"},
      {"names: [a, {b: c}]", "model.names: expects a list, each a text, got a mapping"},
      {"width: 9007199254740993",
       "model.width: expects a whole number >= 1, got '9007199254740993'; at most 9007199254740992 is possible"},
  };
  for (const auto& [lines, message] : lists) {
    const auto line = 3 + std::count(lines.begin(), lines.end(), '\n');
    EXPECT_EQ(told("task: {classes: 3}\nmodel:\n  " + lines), concat("c.yaml:", line, ": ", message)) << lines;
  }
  EXPECT_EQ(told(""), "c.yaml: task.classes: is missing, and has no default");
  EXPECT_EQ(told("task: {kind: large}"), "c.yaml:1: task.classes: is missing, and has no default");
  EXPECT_EQ(told("task: {classes: 1}\nmodel: {width: 0}\nsed: 1"),
            "c.yaml:1: task.classes: expects a whole number from 2 to 1000, got '1'\n"
            "c.yaml:2: model.width: expects a whole number >= 1, got '0'\n"
            "c.yaml:3: unknown key 'sed'; `keel train --help-config` lists all keys");
}

TEST(Settings, OfAProgramWithoutAFileListAllThatIsWrong) {
  const auto why = [](const Texts& texts) {
    try {
      const Settings settings(kRows, texts);
    } catch (const Error& error) { return std::string(error.what()); }
    return std::string();
  };
  EXPECT_EQ(why({}), "settings: task.classes: is missing, and has no default");
  EXPECT_EQ(why({{"task.classes", "x"}, {"model.sizes", "[3"}}),
            "settings, 'task.classes=x': task.classes: expects a whole number from 2 to 1000, got 'x'\n"
            "settings, 'model.sizes=[3': model.sizes: a quote or bracket is opened and not closed");
  EXPECT_EQ(why({{"task.classes", "3"}, {"model", "{width: 5, sizes: [2]}"}}), "");
  const KeyRow lonely[] = {{"task.a", KeyType::integer, "=seed", "A."}};
  try {
    const Settings settings(lonely);
    ADD_FAILURE() << "a row depends on a key that is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    EXPECT_STREQ(error.what(), "settings: task.a depends on seed, which is no key of these rows");
  }
}

TEST(Settings, AskedForWhatThereIsNotSayWhatThereIs) {
  const KeyRow rows[] = {{"task.a", KeyType::integer, "1", "A."}, {"task.b", KeyType::path, "x", "B."}};
  const Settings settings(rows);
  const auto why = [](const auto& ask) {
    try {
      ask();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::internal);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(why([&] { settings.integer("task.c"); }),
            "settings: there is no value of 'task.c' here; there are task.a, task.b");
  EXPECT_EQ(why([&] { settings.number("task.a"); }), "settings: task.a is an integer, and is asked for as a number");
  EXPECT_EQ(why([&] { settings.flag("task.b"); }), "settings: task.b is a text, and is asked for as a flag");
  EXPECT_EQ(why([&] { Settings().texts("task.b"); }), "settings: there is no value of 'task.b' here; there are none");
}

TEST(Settings, ThatDifferAreToldByTheRuleOfTheirRow) {
  const Schema schema(schema_rows(kRows));
  const Settings before(kRows, given({}));
  const auto keys = [&](const Settings& now, OnResume kind) {
    std::string text;
    for (const ConfigChange& each : changes_between(schema, before, now, kind))
      text += concat(text.empty() ? "" : ", ", each.key, ' ', each.before, " -> ", each.now);
    return text;
  };
  const Settings other(kRows, given({{"model.sizes", "[3]"}, {"task.smoothing", "0"}, {"data.classes", "9"}}));
  EXPECT_EQ(keys(other, OnResume::refuses), "model.sizes [8, 4] -> [3]");
  EXPECT_EQ(keys(other, OnResume::warns), "task.smoothing 0.1 -> 0");
  EXPECT_EQ(keys(other, OnResume::ignores), "data.classes 3 -> 9");
  EXPECT_EQ(keys(before, OnResume::refuses) + keys(before, OnResume::warns), "");
}

TEST(Settings, JoinASchemaInItsOrder) {
  const KeyRow base_rows[] = {choice("task.type", "one", "one|two"),
                              {"model.depth", KeyType::integer, "1", "Depth."},
                              {"data.path", KeyType::path, "x", "Where."}};
  const Schema base(schema_rows(base_rows));
  const std::shared_ptr<const Schema> both = joined(base, kRows);
  std::string order;
  for (const SchemaRow& row : both->rows()) order += concat(order.empty() ? "" : " ", row.key);
  EXPECT_EQ(
      order,
      "task.kind task.strict task.classes task.smoothing task.title task.teacher task.type model.sizes model.rates "
      "model.names model.heads model.width model.width model.depth data.classes data.path");
  EXPECT_EQ(base.rows().size(), 3u);
  Settings settings;
  EXPECT_EQ(told(*both, "task: {classes: 4, type: two}\nmodel: {depth: 3}", settings), "");
  EXPECT_EQ(settings.integer("model.depth"), 3);
  EXPECT_EQ(to_yaml(*both, settings).substr(0, 40), "task:\n  kind: small\n  strict: false\n  cl");
  EXPECT_NE(key_help(*both).find("model.width = 64   (when task.kind is small)\n    a whole number >= 1. Width.\n"),
            std::string::npos);
  EXPECT_NE(key_tables(*both).find("| `task.classes` | a whole number from 2 to 1000 | required |  | Classes"),
            std::string::npos);
  const KeyRow late[] = {when({"model.a", KeyType::flag, "true", "A."}, "data.kind", "b"),
                         choice("data.kind", "b", "b|c")};
  EXPECT_THROW(joined(base, late), Error);
  const KeyRow without_task[] = {{"model.depth", KeyType::integer, "1", "Depth."}};
  EXPECT_EQ(joined(Schema(schema_rows(without_task)), std::span(kRows).first(1))->rows()[0].key, "task.kind");
}

TEST(Settings, AWrongListOfRowsIsToldALineForEachMistake) {
  const std::string_view taken[] = {"seed", "task.type", "data.type"};
  EXPECT_EQ(complaint_about(kRows, taken), "");
  const auto about = [&](std::initializer_list<KeyRow> rows) {
    return complaint_about(std::span(rows.begin(), rows.size()), taken);
  };
  const KeyRow a = {"task.a", KeyType::integer, "1", "A."};
  EXPECT_EQ(about({when({"task.a", KeyType::integer, "=seed", "A."}, "data.type", "x")}), "");
  const std::string no_name = "a key is task, model, data or eval, a dot, and letters, digits and _";
  for (const std::string_view key : {"optimizer.a", "task", "task.", "task.a-b", "task.a.b", "a"})
    EXPECT_EQ(about({{key, KeyType::integer, "1", "A."}}), concat(key, ": ", no_name));
  EXPECT_EQ(about({{"", KeyType::integer, "1", "A."}}), "a key without a name: " + no_name);
  EXPECT_EQ(about({{"task.type", KeyType::text, "x", "A."}}), "task.type: there is a key of this name already");
  EXPECT_EQ(about({a, a}), "task.a: is there twice");
  EXPECT_EQ(about({a, {"task.b", KeyType::flag, "true", "B."}, a}),
            "task.a: is there twice\ntask.a: its rows must be next to each other");
  const KeyRow x = choice("task.b", "u", "u|v|w");
  EXPECT_EQ(about({x, when(a, "task.b", "u"), when(a, "task.b", "v|w")}), "");
  EXPECT_EQ(about({x, when(a, "task.b", "u|w"), when(a, "task.b", "v|w")}),
            "task.a: is there twice under one condition");
  EXPECT_EQ(about({x, when(a, "task.b", "z")}), "task.a: applies where task.b is z, which it never is");
  EXPECT_EQ(about({when(a, "task.b", "u"), x}),
            "task.a: depends on task.b, which is no choice, flag or text of an earlier row");
  EXPECT_EQ(about({x, when(a, "", "u")}), "task.a: a condition is a key and its values");
  EXPECT_EQ(about({{"task.a", KeyType::integer, "0", "A.", 1}}),
            "task.a: its default: expects a whole number >= 1, got '0'");
  EXPECT_EQ(about({{"task.a", KeyType::integers, "[1", "A."}}),
            "task.a: its default: a quote or bracket is opened and not closed");
  EXPECT_EQ(about({{"task.a", KeyType::integer, "=task.z", "A."}}),
            "task.a: has the value of task.z by default, which is no earlier key");
  EXPECT_EQ(about({{"task.a", KeyType::choice, "a", "A."}}), "task.a: a choice needs choices, as in \"a|b\"");
  KeyRow with_choices = a;
  with_choices.choices = "1|2";
  EXPECT_EQ(about({with_choices}), "task.a: only a choice has choices");
  EXPECT_EQ(about({{"task.a", KeyType::integer, "", "A.", 2, 1}}), "task.a: no number is within its limits");
  EXPECT_EQ(about({{"task.a", KeyType::integer, "1", ""}}), "task.a: needs a help of one line");
  EXPECT_EQ(about({{"task.a", KeyType::integer, "x", "A."}, {"task.b", KeyType::flag, "x", "B."}}),
            "task.a: its default: expects a whole number, got 'x'\n"
            "task.b: its default: expects true or false, got 'x'");
}

KeyRow with_role(KeyRow row, KeyRole role) {
  row.role = role;
  return row;
}

TEST(Settings, AKeyIsFoundByItsRole) {
  const KeyRow rows[] = {with_role({"data.file", KeyType::path, "a.csv", "A file."}, KeyRole::data_file),
                         {"data.rows", KeyType::integer, "4", "Rows."}};
  EXPECT_EQ(complaint_about(rows, {}), "");
  const Schema schema(schema_rows(rows));
  EXPECT_EQ(schema.key_of(KeyRole::data_file), "data.file");
  EXPECT_EQ(schema.key_of(KeyRole::heads), "");
  EXPECT_EQ(schema.key_of(KeyRole::none), "");

  const KeyRow twice[] = {rows[0], with_role({"data.text", KeyType::path, "a.txt", "Another."}, KeyRole::data_file)};
  EXPECT_EQ(complaint_about(twice, {}), "data.text: is the file of the data, as data.file is");
  const KeyRow heads[] = {
      with_role(with_parts({"model.heads", KeyType::parts, "[]", "Heads."}, kHeads), KeyRole::heads)};
  EXPECT_EQ(complaint_about(heads, {}), "model.heads: heads are parts with the key type");
}

TEST(Settings, PartsAreMappingsWithDefaultsOfTheirOwn) {
  const Schema schema(schema_rows(kRows));
  Settings settings;
  EXPECT_EQ(
      told(schema, "task: {classes: 3}\nmodel:\n  heads: [{name: digit}, {weight: 0.5, name: angle}]\n", settings), "");
  const std::vector<Settings>& heads = settings.parts("model.heads");
  ASSERT_EQ(heads.size(), 2u);
  EXPECT_EQ(heads[0].text("name"), "digit");
  EXPECT_EQ(heads[0].number("weight"), 1);
  EXPECT_EQ(heads[1].number("weight"), 0.5);
  const std::string yaml = to_yaml(schema, settings);
  EXPECT_NE(yaml.find("heads: [{name: digit, weight: 1}, {name: angle, weight: 0.5}]"), std::string::npos) << yaml;
  Settings again;
  EXPECT_EQ(told(schema, yaml, again), "");
  EXPECT_EQ(again, settings);

  const auto wrong = [](const std::string& heads_text) {
    return told(concat("task: {classes: 3}\nmodel:\n  heads: ", heads_text, '\n'));
  };
  EXPECT_NE(wrong("[{name: a}, {nam: b}]")
                .find("c.yaml:3: model.heads[1].nam: a head has no such key; did you mean "
                      "'name'?"),
            std::string::npos)
      << wrong("[{name: a}, {nam: b}]");
  EXPECT_NE(wrong("[{weight: 1}]").find("[0].name: is missing, and has no default"), std::string::npos);
  EXPECT_NE(wrong("[{name: a, weight: 101}]").find("[0].weight: expects a number from 0 to 100"), std::string::npos);
  EXPECT_NE(wrong("[digit]").find("[0]: expects {name, weight}"), std::string::npos);
  EXPECT_NE(wrong("digit").find("expects a list, each {name, weight}"), std::string::npos);

  const KeyParts bad = {"a part", {{"task.x", KeyType::text, "1", ""}}};
  const KeyRow row[] = {with_parts({"model.parts", KeyType::parts, "[]", "Parts."}, bad)};
  const std::string complaint = complaint_about(row, {});
  EXPECT_NE(complaint.find("task.x: needs a help of one line"), std::string::npos) << complaint;
  EXPECT_NE(complaint.find("has neither a section nor"), std::string::npos) << complaint;
  const KeyRow none[] = {{"model.parts", KeyType::parts, "[]", "Parts."}};
  EXPECT_NE(complaint_about(none, {}).find("parts need keys"), std::string::npos);
}

}  // namespace
}  // namespace keel
