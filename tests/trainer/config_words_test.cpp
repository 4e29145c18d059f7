// What newcomers write and mean: a file that is none, braces without quotes, ~, another type for a shipped file.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <set>
#include <sstream>
#include <utility>
#include <variant>

#include "keel/trainer/schema.h"
#include "tests/trainer/config_mistakes.h"
#include "tests/trainer/language_schema.h"

namespace keel {
namespace {

using testing::language_schema;
using testing::message_of;
using testing::with;

TEST(ConfigWords, AFileThatIsNoTextIsNoConfiguration) {
  EXPECT_EQ(message_of(std::string("\x7f"
                                   "ELF\0",
                                   5) +
                       std::string(kLongestYaml, 'x')),
            "c.yaml:1: holds a control character (byte 127): it is not a text file");
  EXPECT_EQ(message_of(std::string(1, '\0') + std::string(kLongestYaml, 'x')),
            "c.yaml:1: holds zero bytes: it is not a text file");
  EXPECT_EQ(message_of("steps: 1 # \x1b[31m"), "c.yaml:1: holds a control character (byte 27): it is not a text file");
  EXPECT_EQ(message_of(std::string(kLongestYaml + 1, '#')),
            "c.yaml:1: is longer than 65536 bytes, the most that a configuration may have; is this the right file?");
}

TEST(ConfigWords, WhatAShellMakesOfBracesIsToldOnce) {
  EXPECT_EQ(message_of(with(""), {"clip=1", "model={layers:", "2,", "width:", "64}", "seed=2"}),
            "command line, 'model={layers: 2, width: 64}': a shell cuts this at its spaces; put it in quotes: "
            "'model={layers: 2, width: 64}'");
  EXPECT_EQ(message_of(with(""), {"optimizer.betas=[0.9,", "0.99]"}),
            "command line, 'optimizer.betas=[0.9, 0.99]': a shell cuts this at its spaces; put it in quotes: "
            "'optimizer.betas=[0.9, 0.99]'");
  // Bash makes two words of model={layers:2,width:64}.
  EXPECT_EQ(message_of(with(""), {"model=layers:2", "model=width:64"}),
            "command line, 'model=width:64': model: is a section; write it as `model: {key: value, ...}`, in quotes "
            "that keep the braces from a shell, or as model.KEY=VALUE");
  EXPECT_EQ(message_of(with(""), {"optimizer={lr:0.3}"}),
            "command line, 'optimizer={lr:0.3}': 'optimizer.lr:0.3' needs a space behind the colon, as in `lr: VALUE`");
}

TEST(ConfigWords, ALineBreakInAChangeIsRefusedInsteadOfBecomingASpace) {
  for (const std::string value : {"runs/a\nb", "'runs/a\n\nb'", "|\n  runs/a", "a\rb", "a\n"}) {
    const std::string message = message_of(with(""), {"run=" + value});
    EXPECT_TRUE(message.ends_with("': run: a value behind KEY= is one line; a file may have values of several"))
        << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(ConfigWords, AHomeFolderIsReplacedInEveryPath) {
  const char* home = std::getenv("HOME");
  const std::string before = home == nullptr ? "" : home;
  ::setenv("HOME", "/home/ada", 1);
  const Config config =
      parse_config("steps: 1\ndata: {path: ~/a b.txt}\nrun: '~/runs/x'", "c.yaml", {"resume=~/runs/y"});
  EXPECT_EQ(config.text("data.path"), "/home/ada/a b.txt");
  EXPECT_EQ(config.run, "/home/ada/runs/x");
  EXPECT_EQ(config.resume, "/home/ada/runs/y");
  EXPECT_EQ(parse_config(with(""), "c.yaml", {"run=~ada/x"}).run, "~ada/x");
  ::unsetenv("HOME");
  EXPECT_EQ(message_of(with(""), {"run=~/x"}),
            "command line, 'run=~/x': run: '~/x' begins with ~, and HOME is not set; write the folder out");
  if (home != nullptr) ::setenv("HOME", before.c_str(), 1);
}

TEST(ConfigWords, TrueAndFalseAreWordsForResuming) {
  const std::pair<const char*, const char*> words[] = {{"true", "auto"},   {"yes", "auto"}, {"auto", "auto"},
                                                       {"false", "never"}, {"no", "never"}, {"./true", "./true"}};
  for (const auto& [given, meant] : words)
    EXPECT_EQ(parse_config(with(""), "c.yaml", {concat("resume=", given)}).resume, meant);
}

TEST(ConfigWords, WhatAReplacedChoiceMakesMeaninglessIsLeftOutWithANote) {
  const std::string file = "steps: 9\ndata: {type: text, path: x, tokenizer: byte}\nscheduler:\n  warmup: 3\n";
  std::vector<std::string> notes;
  const Config config =
      parse_config(file, "c.yaml", {"data.type=tokens", "scheduler.type=OneCycleLR"}, "command line", &notes);
  EXPECT_EQ(config, parse_config("steps: 9\ndata: {type: tokens, path: x}\nscheduler: {type: OneCycleLR}", "c.yaml"));
  EXPECT_EQ(notes,
            (std::vector<std::string>{
                "c.yaml:2: data.tokenizer is left out: it does not apply where data.type is tokens",
                "c.yaml:4: scheduler.warmup is left out: it does not apply where scheduler.type is OneCycleLR"}));
  // What is asked for together must go together.
  EXPECT_NE(message_of(file, {"scheduler.type=OneCycleLR", "scheduler.warmup=2"}).find("applies only when"),
            std::string::npos);
  EXPECT_NE(message_of("steps: 9\ndata: {type: addition, path: x}").find("applies only when"), std::string::npos);
  EXPECT_NE(message_of("steps: 9\ndata: {type: addition, path: x}", {"seed=2"}).find("applies only when"),
            std::string::npos);
}

// Values that other keys depend on.
std::vector<std::pair<std::string, std::string>> all_choices() {
  std::set<std::string_view> deciding;
  for (const SchemaRow& row : language_schema().rows()) deciding.insert(row.when.key);
  std::vector<std::pair<std::string, std::string>> choices;
  for (const SchemaRow& row : language_schema().rows())
    if (deciding.contains(row.key) && !row.fixed)
      for (const std::string_view choice : split_choices(row.field->choices())) choices.emplace_back(row.key, choice);
  return choices;
}

TEST(ConfigWords, EveryChoiceMayReplaceThatOfAShippedFile) {
  EXPECT_GT(all_choices().size(), 60u);
  for (const char* file : {"examples/addition.yaml", "examples/text.yaml", "learn/gpt.yaml"})
    for (const auto& [key, choice] : all_choices()) {
      std::string message;
      try {
        load_config(concat(KEEL_SOURCE_DIR "/", file), {concat(key, '=', choice)});
      } catch (const Error& error) { message = error.what(); }
      // What the new one cannot do without is the only thing to ask for.
      std::istringstream lines(message);
      for (std::string line; std::getline(lines, line);)
        EXPECT_TRUE(line.ends_with(": is missing, and has no default"))
            << file << ' ' << key << '=' << choice << ": " << line;
    }
}

}  // namespace
}  // namespace keel
