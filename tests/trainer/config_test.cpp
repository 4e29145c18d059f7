#include "keel/trainer/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "keel/config/yaml_reader.h"
#include "keel/runtime/error.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/schema.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"
#include "tests/trainer/config_mistakes.h"

namespace keel {
namespace {

using namespace testing;

TEST(Config, TheExampleOfEveryTaskIsReadAndShown) {
  const std::string page = config_reference();
  for (const TaskEntry& task : keel_keys()->tasks().entries()) {
    EXPECT_EQ(parse_config(concat(task.example, "steps: 1\n"), "c.yaml").task, task.name);
    EXPECT_NE(page.find(task.example), std::string::npos) << task.name;
  }
}

TEST(Config, ReadsTheExampleOfTheDocumentation) {
  const Config config = parse_config(config_example(), "c.yaml");
  EXPECT_EQ(config.seed, 1u);
  EXPECT_EQ(config.steps, 2000);
  EXPECT_EQ(config.integer("model.layers"), 4);
  EXPECT_EQ(config.integer("model.heads"), 4);
  EXPECT_EQ(config.integer("model.width"), 128);
  EXPECT_EQ(config.integer("model.block"), 64);
  EXPECT_EQ(config.text("data.type"), "text");
  EXPECT_EQ(config.text("data.path"), "corpus.txt");
  EXPECT_EQ(config.text("data.tokenizer"), "byte");
  EXPECT_EQ(config.number("data.validation"), 0.1);
  EXPECT_EQ(config.batch.global, 48);
  EXPECT_EQ(config.batch.micro, 12);
  EXPECT_EQ(config.optimizer.type, "AdamW");
  EXPECT_EQ(config.optimizer.lr, 1e-3);
  EXPECT_EQ(config.optimizer.betas, (std::array{0.9, 0.99}));
  EXPECT_EQ(config.optimizer.weight_decay, 0.1);
  ScheduleSettings schedule = default_schedule("cosine");
  schedule[ScheduleParameter::warmup] = {100};
  schedule[ScheduleParameter::min_lr] = {1e-4};
  EXPECT_EQ(config.scheduler.settings, schedule);
  EXPECT_EQ(config.eval.every, 250);
  EXPECT_EQ(config.checkpoint.every, 500);
  EXPECT_EQ(config.checkpoint.keep, 2);
  EXPECT_EQ(to_string(config.strategy), "bf16");
}

TEST(Config, DefaultsFollowFromOtherValues) {
  const Config config = parse_config("{steps: 30, seed: 7, data: {type: addition}, batch: {global: 20}}", "a/b.yaml");
  EXPECT_EQ(config.batch.micro, 20);
  EXPECT_EQ(config.scheduler.settings, default_schedule("cosine"));
  EXPECT_EQ(config.data.seed, 7u);
  EXPECT_EQ(config.run, "runs/b");
  EXPECT_EQ(config.clip, 1);
  EXPECT_EQ(config.optimizer.weight_decay, 0.01);
  EXPECT_EQ(parse_config(with("optimizer: {type: SGD}"), "c").optimizer.weight_decay, 0);
}

TEST(Config, NamedModelsHaveThePublishedSizes) {
  const Config config = parse_config(with("model: {name: gpt2-xl, block: 256}"), "c.yaml");
  EXPECT_EQ(config.integer("model.layers"), 48);
  EXPECT_EQ(config.integer("model.heads"), 25);
  EXPECT_EQ(config.integer("model.width"), 1600);
  EXPECT_EQ(config.integer("model.block"), 256);
  EXPECT_EQ(config.integer("model.vocabulary"), 50257);
  EXPECT_EQ(message_of(with("model: {name: gpt2, layers: 3}")),
            "c.yaml:3: model.layers: applies only when model.name is custom, and model.name is gpt2; remove one of the "
            "two");
}

TEST(Config, OverridesReplaceValuesAndSections) {
  const Overrides overrides = {"optimizer.lr=3e-4", "model={width: 64, heads: 2}", "steps=5", "steps=6",
                               "data.type=text",    "data.path=my corpus.txt"};
  const Config config =
      parse_config("steps: 9\nmodel: {layers: 9, width: 90}\ndata: {type: addition}\n", "c", overrides);
  EXPECT_EQ(config.optimizer.lr, 3e-4);
  EXPECT_EQ(config.integer("model.width"), 64);
  EXPECT_EQ(config.integer("model.layers"), 4);  // the section was replaced, so this is the default again
  EXPECT_EQ(config.steps, 6);
  EXPECT_EQ(config.text("data.path"), "my corpus.txt");
}

// DeepSpeed's hpZ keeps a second copy of the weights alone in each node, and PyTorch's find_unused_parameters = true is
// what keel does unless sharding.strict is true.
TEST(Config, NoWordOfOtherProgramsLeadsToAKeyThatMeansSomethingElse) {
  for (const std::string word : {"zero_hpz_partition_size", "find_unused_parameters"}) {
    EXPECT_EQ(message_of(with("sharding: {" + word + ": 1}")).find("did you mean"), std::string::npos) << word;
    EXPECT_EQ(message_of(with(word + ": 1")),
              "c.yaml:3: unknown key '" + word + "'; `keel train --help-config` lists all keys");
  }
}

TEST(Config, AKeyOfOlderVersionsIsReadAsTheOneThatTookItsPlace) {
  const auto accumulation_of = [](const std::string& lines, const Overrides& overrides = {}) {
    return parse_config(with(lines), "c", overrides).sharding.accumulation;
  };
  const std::string old_true = "sharding: {reduce_each_backward: true}",
                    old_false = "sharding: {reduce_each_backward: false}";
  EXPECT_EQ(accumulation_of("strategy: zero2\n" + old_true), Accumulation::each_backward);
  EXPECT_EQ(accumulation_of("strategy: zero3-bf16\n" + old_false), Accumulation::deferred);
  for (const std::string stage : {"ddp", "zero1", "fp32"})  // had no choice
    EXPECT_EQ(accumulation_of("strategy: " + stage + "\n" + old_true), Accumulation::deferred) << stage;
  EXPECT_EQ(accumulation_of("strategy: zero2\n" + old_true, {"sharding.accumulation=deferred"}),
            Accumulation::deferred);
  EXPECT_EQ(
      accumulation_of("strategy: zero2\nsharding: {accumulation: deferred}", {"sharding.reduce_each_backward=true"}),
      Accumulation::each_backward);
  EXPECT_EQ(message_of(with("sharding: {reduce_each_backward: 3}")),
            "c.yaml:3: sharding.reduce_each_backward: expects true or false, got '3'");
  EXPECT_EQ(message_of(with("sharding: {reduce_each_backward: true, accumulation: deferred}")),
            "c.yaml:3: key 'sharding.reduce_each_backward' is the older form of 'sharding.accumulation', which is "
            "given, too");
}

TEST(Config, EveryMistakeIsNamedWithItsPlace) {
  const Wrong cases[] = {
      {with("optimzer: {lr: 1}"), "c.yaml:3: unknown key 'optimzer.lr', did you mean 'optimizer.lr'?"},
      {with("checkpoint: {folder: x}"),
       "c.yaml:3: unknown key 'checkpoint.folder'; checkpoint has every, minutes, keep, keep_every, async, busy, "
       "memory_every, best, best_mode"},
      {with("lr: 1"), "c.yaml:3: unknown key 'lr', did you mean 'optimizer.lr'?"},
      {with("batch_size: 1"), "c.yaml:3: unknown key 'batch_size', did you mean 'batch.global'?"},
      {with("xylophone: 1"), "c.yaml:3: unknown key 'xylophone'; `keel train --help-config` lists all keys"},
      {with("seed: -1"), "c.yaml:3: seed: expects a whole number from 0 to 18446744073709551615, got '-1'"},
      {with("threads: 1.5"), "c.yaml:3: threads: expects a whole number from 0 to 4096, got '1.5'"},
      {with("clip: \"1\""), "c.yaml:3: clip: expects a number >= 0, got '1' in quotes, which make it a text"},
      {with("clip: nan"), "c.yaml:3: clip: expects a number >= 0, got 'nan'"},
      {with("clip: 1e999"), "c.yaml:3: clip: expects a number >= 0, got '1e999'"},
      {with("clip:"), "c.yaml:3: clip: expects a number >= 0, got nothing"},
      {with("clip: [1]"), "c.yaml:3: clip: expects a number >= 0, got a list"},
      {with("clip: {a: 1}"), "c.yaml:3: clip: expects a value, got a mapping"},
      {with("model: 3"), "c.yaml:3: model: is a section; write it as `model: {key: value, ...}`"},
      {with("model: {bias: yes}"), "c.yaml:3: model.bias: expects true or false, got 'yes'"},
      {with("model: {dropout: 1}"), "c.yaml:3: model.dropout: expects a number from 0 to below 1, got '1'"},
      {with("scheduler: {warmup: 101}"),
       "c.yaml:3: scheduler.warmup: 101 warm-up steps do not fit into the schedule's 100"},
      {with("scheduler: {type: constant, warmup: 101}"),
       "c.yaml:3: scheduler.warmup: 101 warm-up steps do not fit into 100 steps"},
      {with("model: {heads: 3}"),
       "c.yaml:3: model.heads: 3 heads do not divide the width 128; choose a width that is a multiple"},
      {with("steps: 3"), "c.yaml:3: key 'steps' is given twice, first on line 1"},
      {with("clip: 1\n\tseed: 1"), "c.yaml:4: a tab is used as indentation; use spaces"},
      {with("---\nclip: 1"), "c.yaml:4: a second document starts (---); keep one"},
      {with("clip: &a 1"), "c.yaml:3: anchors and aliases (&, *) are not used here; write the value out"},
      {with("clip: !!float 1"), "c.yaml:3: tags (!) are not used here; write the plain value"},
      {with("%YAML 1.2"), "c.yaml:3: directives (%) are not used here"},
      {with("run: 'x\nclip: 1"), "c.yaml:3: a quote or bracket is opened and not closed"},
      {with("model: {heads: 4"), "c.yaml:3: a quote or bracket is opened and not closed"},
      {with("'a\\tb': 1"), "c.yaml:3: unknown key 'a\\tb'; `keel train --help-config` lists all keys"},
      {with("\"a\\tb\": 1"), "c.yaml:3: unknown key 'a\\x09b'; `keel train --help-config` lists all keys"},
      {with("[a]: 1"), "c.yaml:3: a key must be a word, as in `steps: 100`"},
      {with("optimizer.lr: 1"),
       "c.yaml:3: key 'optimizer.lr' is written with a dot; nest it, as in `optimizer: {lr: 1e-3}`"},
      {with("strategy: zero4-bf16"),
       "c.yaml:3: strategy: expects fp32, bf16, fp16 or auto, alone or after ddp-, zero1-, zero2- or zero3-, as in "
       "zero2-bf16 (`keel strats --all` lists every name); got 'zero4-bf16'; did you mean 'zero1-bf16'?"},
      {with("run: ''"), "c.yaml:3: run: is empty"},
      {with("tracker: {type: csv, tags: [team]}"),
       "c.yaml:3: tracker: csv: tags are KEY=VALUE, as in team=blue, and not 'team'"},
      {"- steps", "c.yaml:1: expects keys with values, as in `steps: 100`"},
      {"", "c.yaml: steps: is missing, and has no default\nc.yaml: data.path: is missing, and has no default"},
      {"steps: 1\ndata: 3", "c.yaml:2: data: is a section; write it as `data: {key: value, ...}`"},
      {"data: {type: addition}", "c.yaml: steps: is missing, and has no default"},
      {"steps: 1\ndata:\n  type: tokens", "c.yaml:3: data.path: is missing, and has no default"},
      {std::string("steps: 1\0", 9), "c.yaml:1: holds zero bytes: it is not a text file"},
  };
  for (const Wrong& wrong : cases) EXPECT_EQ(message_of(wrong.yaml), wrong.message) << wrong.yaml;
}

// A number that is none, a list for one value, a mapping for either.
TEST(Config, EveryKeyRefusesWhatIsNoneOfItsValuesAndSaysWhichTheyAre) {
  Config config;
  int numbers = 0, flags = 0;
  for (const SchemaRow& row : keel_keys()->schema("language").rows()) {
    const std::string takes = row.field->values(row);
    const auto refusal = [&](const char* text) {
      const YamlDocument document = read_yaml(concat("value: ", text));
      return error_of([&] { row.field->set(row, config, document.root.entries.at(0).value); });
    };
    if (!row.field->takes_mappings()) { EXPECT_NE(refusal("{a: 1}"), "") << row.key; }
    const bool is_number = (takes.starts_with("a number") || takes.starts_with("a whole number")) &&
                           takes.find(',') == std::string::npos,
               is_flag = takes == "true or false";
    if (!is_number && !is_flag) continue;
    ++(is_number ? numbers : flags);
    for (const auto& [text, got] : {std::pair("x!", "'x!'"),
                                    {"1.5.2", "'1.5.2'"},
                                    {"1e999x", "'1e999x'"},
                                    {"'1'", "'1' in quotes, which make it a text"},
                                    {"", "nothing"}})
      EXPECT_TRUE(refusal(text).starts_with(concat("expects ", takes, ", got ", got)))
          << row.key << ": " << refusal(text);
  }
  EXPECT_GE(numbers, 60);
  EXPECT_GE(flags, 15);
}

TEST(Config, SyntaxErrorsNameTheirLineInWordsOfOurOwn) {
  const Wrong cases[] = {
      {"run: b: c", "c.yaml:3: has one colon too many, or is not indented"},
      {"]", "c.yaml:3: closes a ] or } that nothing opened"},
      {"model: {layers: [2 }", "c.yaml:3: closes a ] or } that nothing opened"},
      {"clip: @1", "c.yaml:3: a value may not begin with @ or `"},
      {"model: {layers: 2 heads: {a: 1}", "c.yaml:3: inside braces a comma is missing"},
      {"optimizer: {betas: [0.9, {a: 1} 3]}", "c.yaml:3: inside brackets a comma is missing"},
      {"run: \"a\\qb\"", "c.yaml:3: a \\ in double quotes begins no escape"},
      {"run: \"a\\xgg\"", "c.yaml:3: a \\ in double quotes begins no escape"},
      {"model:\n  layers: 2\n heads: 2", "c.yaml:5: expects `key: value`, indented as the keys above it"},
      {"run: - a", "c.yaml:3: a - begins an item of a list"},
      {"run: |x\n  a", "c.yaml:3: behind | or > stands nothing but the text"},
      {"clip: *", "c.yaml:3: anchors and aliases"},
      {"clip: *a", "c.yaml:3: anchors and aliases"},
      {"clip: !<x 1", "c.yaml:3: tags (!) are not used here"},
  };
  for (const Wrong& wrong : cases) {
    const std::string message = message_of(with(wrong.yaml));
    EXPECT_TRUE(message.starts_with(wrong.message)) << wrong.yaml << "\n" << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << "one mistake, one line: " << message;
  }
}

TEST(Config, AllMistakesAreReportedTogetherSortedByLine) {
  EXPECT_EQ(message_of("seed: x\nbatch: {global: 0, micro: 3}\nmodell: {}\nclip: -1\n", {"threads=x", "bogus"}),
            "c.yaml:1: seed: expects a whole number from 0 to 18446744073709551615, got 'x'\n"
            "c.yaml:2: batch.global: expects a whole number from 1 to 16777216, got '0'\n"
            "c.yaml:3: unknown key 'modell', did you mean 'model'?\n"
            "c.yaml:4: clip: expects a number >= 0, got '-1'\n"
            "c.yaml: steps: is missing, and has no default\n"
            "c.yaml: data.path: is missing, and has no default\n"
            "command line, 'threads=x': threads: expects a whole number from 0 to 4096, got 'x'\n"
            "command line, 'bogus': expects KEY=VALUE, as in optimizer.lr=3e-4");
}

TEST(Config, MistakesOfTheCommandLineNameTheOverride) {
  const Wrong cases[] = {
      {"optimizer.lr=x", "optimizer.lr: expects a number > 0, got 'x'"},
      {"optimizer.lr=", "optimizer.lr: expects a number > 0, got nothing"},
      {"optimizer.lrr=1", "unknown key 'optimizer.lrr', did you mean 'optimizer.lr'?"},
      {"model={widht: 3}", "unknown key 'model.widht', did you mean 'model.width'?"},
      {"model={heads: 3", "model: a quote or bracket is opened and not closed"},
      {"=1", "expects KEY=VALUE, as in optimizer.lr=3e-4"},
  };
  for (const Wrong& wrong : cases)
    EXPECT_EQ(message_of(with(""), {wrong.yaml}), "command line, '" + wrong.yaml + "': " + wrong.message);
}

TEST(Config, ResolvedYamlLoadsToTheSameConfig) {
  const std::string files[] = {
      std::string(config_example()),
      with(""),
      with("seed: 18446744073709551615\nrun: \"a b: #\\\"\\\\'\"\nresume: 'null'"),
      with("optimizer: {type: SGD, momentum: 0.9, nesterov: true, lr: 0.30000000000000004}\nscheduler: {type: "
           "constant}"),
      with("model: {name: gpt2-large, vocabulary: 300}\nstrategy: zero3-auto\ndevice: cpu\nkernels: plain"),
      "steps: 1\ndata: {type: tokens, path: ~/x y, validation: 0}\ntime_limit: 1e-3",
  };
  for (const std::string& yaml : files) {
    const Config config = parse_config(yaml, "first.yaml");
    const std::string resolved = to_yaml(config);
    EXPECT_EQ(parse_config(resolved, "second.yaml"), config) << resolved;
    EXPECT_EQ(to_yaml(parse_config(resolved, "second.yaml")), resolved);
  }
}

TEST(Config, LoadsAFileAndRefusesOneThatCannotBeRead) {
  const testing::TemporaryFolder folder;
  const std::string file = folder / "tiny run.yaml";
  std::ofstream(file) << with("");
  EXPECT_EQ(load_config(file, {"clip=2"}).clip, 2);
  EXPECT_EQ(load_config(file).run, "runs/tiny run");
  for (const std::size_t beyond : {0, 1, 100000}) {
    std::ofstream(file) << with("") << std::string(kLongestYaml - with("").size() + beyond, '#');
    const std::string told = testing::error_of([&] { load_config(file); });
    EXPECT_EQ(told.find("is longer than 65536 bytes") != std::string::npos, beyond > 0) << told;
  }
  std::filesystem::remove(file);
  for (const std::string& path : {file, folder.path()}) try {
      load_config(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::io);
      EXPECT_TRUE(std::string(error.what()).starts_with(path)) << error.what();
    }
}

// Every single-byte deletion, and seeded cuts, swaps and insertions of YAML's own characters: each text gives a
// Config that survives the round trip, or an Error whose lines all name a place.
TEST(Config, MutatedFilesGiveAConfigOrAnError) {
  const std::string original = std::string(config_example()) + "clip: 1.0\nresume: never # comment\nrun: 'a''b'\n";
  const std::vector<std::string> pieces = {"{",        "}",    "[",     "]",   ":",  ": ", ",",    "\n",
                                           "\n\n",     "- ",   "? ",    "|\n", ">",  "&a", "*a",   "!!x ",
                                           "%",        "@",    "`",     "'",   "\"", "\\", "\t",   "#",
                                           "---",      "...",  "<<",    "~",   "-",  "\r", "\x80", "\xef\xbb\xbf",
                                           "\xff\xfe", "null", "1e400", "-0"};
  std::mt19937_64 random(7);
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int accepted = 0;
  constexpr int kRounds = 6000;
  for (int round = 0; round < kRounds; ++round) {
    std::string text = original;
    if (round < static_cast<int>(original.size())) text.erase(static_cast<std::size_t>(round), 1);
    else
      for (std::size_t edits = 1 + pick(4); edits > 0 && !text.empty(); --edits) {
        const std::size_t at = pick(text.size());
        switch (pick(5)) {
          case 0: text.insert(at, pieces[pick(pieces.size())]); break;
          case 1: text.erase(at, 1 + pick(20)); break;
          case 2: text[at] = static_cast<char>(random()); break;
          case 3: std::swap(text[at], text[pick(text.size())]); break;
          default: text.insert(at, text.substr(pick(text.size()), 1 + pick(40))); break;
        }
      }
    try {
      const Config config = parse_config(text, "c.yaml");
      ++accepted;
      ASSERT_EQ(parse_config(to_yaml(config), "c.yaml"), config) << text;
    } catch (const Error& error) {
      std::istringstream lines(error.what());
      for (std::string line; std::getline(lines, line);) ASSERT_TRUE(line.starts_with("c.yaml:")) << line;
    }
  }
  EXPECT_GT(accepted, kRounds / 100);  // or the mutations would be too coarse to test anything
  EXPECT_LT(accepted, kRounds);
}

TEST(Config, DeepAndLongFilesAreRefusedQuickly) {
  for (const char* piece : {"[", "{", "{a: ", "- ", "? ", "a: [", "'", "&a [*a,", "!", "a:\n b:\n"}) {
    std::string text;
    while (text.size() + 8 < 60000) text += piece;
    EXPECT_THROW(parse_config(text, "c.yaml"), Error) << piece;
  }
  std::string keys;
  for (int i = 0; i < 8000; ++i) keys += concat("k", i, ":\n");
  EXPECT_THROW(parse_config(keys, "c.yaml"), Error);
}

}  // namespace
}  // namespace keel
