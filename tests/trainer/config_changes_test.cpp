// What a run that goes on has another value of than its checkpoint, and what follows from it.

#include "keel/config/changes.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/trainer/language_schema.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

constexpr OnResume kKinds[] = {OnResume::warns, OnResume::refuses, OnResume::paces, OnResume::ignores};

Config config_of(const std::vector<std::string>& overrides) {
  return parse_config("steps: 10\ndata: {type: addition}\nrun: made\n", "made.yaml", overrides);
}

std::string keys_of(const Config& before, const Config& now, OnResume kind) {
  std::string keys;
  for (const ConfigChange& each : changes_between(language_schema(), before, now, kind))
    keys += concat(keys.empty() ? "" : " ", each.key, '=', each.now);
  return keys;
}

// A configuration with another value of the row's key, if one of these will do.
std::optional<Config> changed(const SchemaRow& row, const Config& config) {
  std::vector<std::string> values = {"true", "false",        "3",   "0.25",  "-0.5", "[1, 2]", "name", "[0.25, 0.5]",
                                     "zero", "[{match: a}]", "cpu", "zero1", "auto", "300",    "5",    "1",
                                     "0",    "[csv]"};
  for (const std::string_view value : split_choices(row.field->choices())) values.emplace_back(value);
  for (const std::string& value : values) {
    Config other = config;
    try {
      set_value(row, other, read_yaml(value).root);
    } catch (const Error&) { continue; }
    if (value_text(row, other) != value_text(row, config)) return other;
  }
  return std::nullopt;
}

TEST(ConfigChanges, FindEveryKeyThatDiffersUnderItsOwnKindAndNoOther) {
  const Config config = config_of({"gradient_compression={type: topk}", "checkpoint.async=true"});
  for (const auto& [row, value] : applying_values(config.schema(), config)) {
    if (row->key == "precision") continue;  // kept in the strategy
    if (split_choices(row->field->choices()).size() == 1) continue;
    const std::optional<Config> other = changed(*row, config);
    ASSERT_TRUE(other.has_value()) << row->key << " needs a value in changed()";
    for (const OnResume kind : kKinds) {
      std::vector<std::string_view> keys;
      for (const ConfigChange& each : changes_between(language_schema(), config, *other, kind)) {
        keys.push_back(each.key);
        EXPECT_EQ(each.before, value);
        EXPECT_EQ(each.now, value_text(*row, *other));
      }
      EXPECT_EQ(keys, kind == row->on_resume ? std::vector{row->key} : std::vector<std::string_view>{});
      EXPECT_EQ(keys_of(config, config, kind), "");
    }
  }
}

TEST(ConfigChanges, NameAChoiceAndNotWhatAppliesToItAlone) {
  const Config before = config_of({"optimizer.type=AdamW", "optimizer.lr=0.01"});
  EXPECT_EQ(keys_of(before, config_of({"optimizer={type: SGD, momentum: 0.5, lr: 0.01}"}), OnResume::warns),
            "optimizer.type=SGD optimizer.weight_decay=0");
  EXPECT_EQ(keys_of(before, config_of({"optimizer={type: SGD, momentum: 0.5, lr: 0.5}"}), OnResume::warns),
            "optimizer.type=SGD optimizer.lr=0.5 optimizer.weight_decay=0");
  EXPECT_EQ(keys_of(before, config_of({"optimizer={type: AdamW, betas: [0.5, 0.75], lr: 0.01}"}), OnResume::warns),
            "optimizer.betas=[0.5, 0.75]");
}

TEST(ConfigChanges, OfModelsAreThoseOfTheirNumbersWhateverTheyAreCalled) {
  const Config named = config_of({"model.name=gpt2"}),
               same = config_of({"model={layers: 12, heads: 12, width: 768, block: 1024, vocabulary: 50257}"}),
               medium = config_of({"model.name=gpt2-medium"});
  EXPECT_EQ(keys_of(named, same, OnResume::refuses), "");
  EXPECT_EQ(keys_of(same, named, OnResume::refuses), "");
  for (const Config& before : {named, same})
    EXPECT_EQ(keys_of(before, medium, OnResume::refuses), "model.layers=24 model.heads=16 model.width=1024");
}

TEST(ConfigChanges, AreToldByTheRunThatGoesOnWhereTheTrainingIsAnotherOne) {
  const TemporaryFolder place;
  Recorder first(6), other, alike, longer;
  train(small_run(place, "run"), first);
  for (const char* name : {"alike", "longer"})
    std::filesystem::copy(place / "run", place / name, std::filesystem::copy_options::recursive);
  train(small_run(place, "run", {"resume=auto", "optimizer.lr=0.125", "clip=0.5", "model.dropout=0.25"}), other);
  EXPECT_NE(other.messages.find("goes on with other settings than before: "), std::string::npos) << other.messages;
  for (const char* part : {"optimizer.lr 0.125 instead of ", "clip 0.5 instead of ", "model.dropout 0.25 instead of 0"})
    EXPECT_NE(other.messages.find(part), std::string::npos) << part << "\n" << other.messages;
  train(small_run(place, "alike",
                  {"resume=auto", "sharding.bucket=3", "log.every=2", "checkpoint.async=true", "eval.every=4"}),
        alike);
  EXPECT_EQ(alike.messages.find("goes on with other settings"), std::string::npos) << alike.messages;
  train(small_run(place, "longer", {"resume=auto", "steps=13", "scheduler={type: CosineAnnealingLR}"}), longer);
  EXPECT_NE(longer.messages.find("than before: scheduler (steps 13 instead of 12, scheduler.type CosineAnnealingLR "),
            std::string::npos)
      << longer.messages;
}

}  // namespace
}  // namespace keel
