// Command lines and --help, from descriptions alone.

#include "cli/run_program.h"

#include <gtest/gtest.h>

#include <optional>

#include "cli/help.h"
#include "keel/runtime/error.h"
#include "tests/error_of.h"

namespace keel::cli {
namespace {

using testing::error_of;

// A command with an option of every kind, and what it was run with.
struct Kitchen {
  std::string file, name = "soup";
  Words settings, spices = {"salt", "pepper"}, pair;
  int cooks = 1;
  std::int64_t grams = 0;
  std::uint64_t seed = 7;
  double heat = 0.5;
  bool stir = true, quiet = false;
  std::vector<int> times;
  std::optional<Call> call;  // empty: it was not run

  bool operator==(const Kitchen& other) const {
    return file == other.file && name == other.name && settings == other.settings && spices == other.spices &&
           pair == other.pair && cooks == other.cooks && grams == other.grams && seed == other.seed &&
           heat == other.heat && stir == other.stir && quiet == other.quiet && times == other.times;
  }
};

Command cook_command(Kitchen& kitchen) {
  return {.name = "cook",
          .help = "Cook something.",
          .positionals = {{"FILE", "", &kitchen.file, "A recipe.", kRequired},
                          {"KEY=VALUE", "", Value::every_word(&kitchen.settings), "Changes to it."}},
          .options = {{"-N,--cooks", "COOKS", {&kitchen.cooks, 1, 8}, "How many."},
                      {"--name", "", &kitchen.name, "Of the dish."},
                      {"--spices", "SPICE", &kitchen.spices, "What goes in."},
                      {"--times", "MIN", {&kitchen.times, 1, 60}, "When to look."},
                      {"--grams", "", {&kitchen.grams, 1, std::int64_t{1} << 40}, "In all."},
                      {"--seed", "", &kitchen.seed, "Of chance."},
                      {"--heat", "", {&kitchen.heat, 0, 1}, "From cold to hot."},
                      {"--pair", "FILE", Value::words(&kitchen.pair, 2), "Two at once."},
                      {"--stir,--no-stir", "", &kitchen.stir, "All the time."},
                      {"--quiet", "", &kitchen.quiet, "Say nothing."},
                      {"--secret", "", &kitchen.quiet, ""}},
          .footer = "\nExample:\n  house cook soup.txt",
          .run = [&kitchen](const Call& call) {
            kitchen.call = call;
            return 5;
          }};
}

Command house(Kitchen& kitchen) { return {.name = "house", .help = "A house.", .commands = {cook_command(kitchen)}}; }

Kitchen cooked(const Words& words) {
  Kitchen kitchen;
  EXPECT_EQ(run_program(cook_command(kitchen), words), 5);
  EXPECT_TRUE(kitchen.call.has_value());
  return kitchen;
}

TEST(CommandLine, EverySpellingOfAnOptionIsTheSame) {
  for (const Words& words : {Words{"-N", "4", "f"},
                             {"-N4", "f"},
                             {"-N=4", "f"},
                             {"--cooks", "4", "f"},
                             {"--cooks=4", "f"},
                             {"f", "--cooks=4"},
                             {"f", "-N", "4"},
                             {"-N", "4", "--", "f"}}) {
    const Kitchen kitchen = cooked(words);
    EXPECT_EQ(kitchen.file, "f");
    EXPECT_EQ(kitchen.cooks, 4);
  }
  for (const char* word : {"--no-stir", "--stir=false", "--no-stir=true"}) EXPECT_FALSE(cooked({"f", word}).stir);
}

TEST(CommandLine, ReadsEveryTypeOfValue) {
  const Kitchen kitchen =
      cooked({"f", "--grams", "1099511627776", "--seed=18446744073709551615", "--heat", "2.5e-1", "--name", "-N",
              "--quiet", "--no-stir", "--times", "1,60", "a=1,2", "--pair", "x", "y", "[b,c]"});
  EXPECT_EQ(kitchen.grams, std::int64_t{1} << 40);
  EXPECT_EQ(kitchen.seed, ~std::uint64_t{0});
  EXPECT_EQ(kitchen.heat, 0.25);
  EXPECT_EQ(kitchen.name, "-N") << "a value may look like an option";
  EXPECT_TRUE(kitchen.quiet);
  EXPECT_FALSE(kitchen.stir);
  EXPECT_EQ(kitchen.times, (std::vector<int>{1, 60}));
  EXPECT_EQ(kitchen.settings, (Words{"a=1,2", "[b,c]"}));
  EXPECT_EQ(kitchen.pair, (Words{"x", "y"}));
}

TEST(CommandLine, AListIsOneWordAndGrowsWhenItIsGivenAgain) {
  EXPECT_EQ(cooked({"f"}).spices, (Words{"salt", "pepper"}));
  const Kitchen kitchen = cooked({"--spices", "dill,mint", "f", "--spices=sage", "a=1"});
  EXPECT_EQ(kitchen.spices, (Words{"dill", "mint", "sage"}));
  EXPECT_EQ(kitchen.file, "f");
  EXPECT_EQ(kitchen.settings, Words{"a=1"});
}

TEST(CommandLine, BehindTwoDashesNothingIsAnOption) {
  const Kitchen kitchen = cooked({"--quiet", "--", "--stir", "-N", "--"});
  EXPECT_EQ(kitchen.file, "--stir");
  EXPECT_EQ(kitchen.settings, (Words{"-N", "--"}));
  EXPECT_EQ(kitchen.cooks, 1);
}

TEST(CommandLine, WhatWasGivenCanBeTypedAgain) {
  const Kitchen first = cooked({"f", "-N4", "a=1", "--no-stir", "--pair=x", "y", "--times", "3", "--spices", "a,b",
                                "--times=4", "--name", "", "b=2"});
  Words again;
  for (const Given& given : *first.call) again.insert(again.end(), given.words.begin(), given.words.end());
  EXPECT_EQ(cooked(again), first);
  EXPECT_EQ(again.size(), 17u) << "and nothing else";
}

TEST(CommandLine, TheRestBelongsToSomebodyElseUnlessItIsShared) {
  struct Case {
    Words words, rest;
    bool quiet;
  };
  for (const Case& each : {Case{{"sh", "-c", "--quiet", "--", "x"}, {"sh", "-c", "--quiet", "--", "x"}, false},
                           Case{{"--quiet", "--", "sh", "-c"}, {"sh", "-c"}, true},
                           Case{{"own", "--other", "3", "--quiet", "a=1"}, {"own", "--other", "3", "a=1"}, true},
                           Case{{"own", "--", "--quiet"}, {"own", "--", "--quiet"}, false}}) {
    Words rest;
    bool quiet = false;
    const Command command = {
        .name = "start",
        .help = "",
        .positionals = {{"PROGRAM", "", Value::rest(&rest, [](std::string_view word) { return word == "own"; }), ""}},
        .options = {{"--quiet", "", &quiet, "Say nothing."}},
        .run = [](const Call&) { return 0; }};
    EXPECT_EQ(run_program(command, each.words), 0);
    EXPECT_EQ(rest, each.rest);
    EXPECT_EQ(quiet, each.quiet);
  }
}

TEST(CommandLine, AWrongOneSaysWhatIsWrongAndWhereHelpIs) {
  struct Case {
    Words words;
    std::string message;
  };
  const std::string help = "; see `house cook --help`";
  for (const Case& each : {
           Case{{}, "which command? `house --help` lists them"},
           Case{{"cok", "f"}, "unknown command 'cok', did you mean 'cook'?"},
           Case{{"garden"}, "unknown command 'garden'; `house --help` lists them"},
           Case{{"--bad", "cook"}, "there is no option '--bad'; see `house --help`"},
           Case{{"cook"}, "FILE is missing" + help},
           Case{{"cook", "f", "--cooks", "9"}, "-N,--cooks expects a whole number from 1 to 8, got '9'" + help},
           Case{{"cook", "f", "-N0"}, "-N,--cooks expects a whole number from 1 to 8, got '0'" + help},
           Case{{"cook", "f", "-N", "4x"}, "-N,--cooks expects a whole number from 1 to 8, got '4x'" + help},
           Case{{"cook", "f", "-N="}, "-N,--cooks expects a whole number from 1 to 8, got ''" + help},
           Case{{"cook", "f", "--heat", "warm"}, "--heat expects a number from 0 to 1, got 'warm'" + help},
           Case{{"cook", "f", "--seed", "-1"}, "--seed expects a whole number from 0 on, got '-1'" + help},
           Case{{"cook", "f", "--times", "1,,2"},
                "--times expects whole numbers with commas between them, each from 1 to 60, got '1,,2'" + help},
           Case{{"cook", "f", "--name"}, "--name expects a value, got nothing" + help},
           Case{{"cook", "f", "--pair", "x"}, "--pair expects 2 values, got 'x'" + help},
           Case{{"cook", "f", "-N1", "--cooks", "2"}, "-N,--cooks is given twice" + help},
           Case{{"cook", "f", "--quiet=loud"}, "--quiet expects true, false or nothing, got 'loud'" + help},
           Case{{"cook", "f", "--spice", "a"}, "there is no option '--spice', did you mean '--spices'?"},
           Case{{"cook", "f", "-x"}, "there is no option '-x'" + help},
           Case{{"cook", "f", "--secrets"}, "there is no option '--secrets'" + help},
       }) {
    Kitchen kitchen;
    EXPECT_EQ(error_of([&] { run_program(house(kitchen), each.words); }), each.message);
    EXPECT_FALSE(kitchen.call.has_value());
  }
}

TEST(Help, ShowsWhatTheDescriptionSays) {
  Kitchen kitchen;
  EXPECT_EQ(help_of(cook_command(kitchen), "house cook"), R"(Cook something.
Usage: house cook [OPTIONS] FILE [KEY=VALUE...]

Positionals:
  FILE TEXT REQUIRED          A recipe.
  KEY=VALUE TEXT ...          Changes to it.

Options:
  -h,--help                   Show this help and end.
  -N,--cooks COOKS:INT in [1 - 8]=1
                              How many.
  --name TEXT=soup            Of the dish.
  --spices SPICE,...=salt,pepper
                              What goes in.
  --times MIN:INT in [1 - 60],...
                              When to look.
  --grams INT in [1 - 1099511627776]
                              In all.
  --seed UINT=7               Of chance.
  --heat FLOAT in [0 - 1]=0.5 From cold to hot.
  --pair FILE x 2             Two at once.
  --stir,--no-stir            All the time.
  --quiet                     Say nothing.


Example:
  house cook soup.txt
)");
  EXPECT_EQ(help_of(house(kitchen), "house"), R"(A house.
Usage: house [OPTIONS] SUBCOMMAND

Options:
  -h,--help                   Show this help and end.

Subcommands:
  cook                        Cook something.
)");
}

}  // namespace
}  // namespace keel::cli
