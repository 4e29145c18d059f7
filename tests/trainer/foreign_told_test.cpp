// What is told of each key of other trainers' files, and the tree of keel's keys that they make, word by word.

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "keel/config/values.h"
#include "keel/runtime/file.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/foreign/load.h"
#include "keel/trainer/foreign/translation.h"
#include "tests/temporary_folder.h"
#include "tests/trainer/foreign_support.h"
#include "tests/trainer/told_cases.h"

namespace keel {
namespace {

using testing::golden;
using testing::read_told_cases;
using testing::TemporaryFolder;
using testing::ToldCase;
using testing::Words;

// Verdicts with lines and keys, then what `keel launch` would take, then the tree with the lines that it comes from.
std::string told_by(const ForeignTranslation& read, const std::string& folder) {
  std::string all;
  for (const ForeignTold& each : read.told)
    all += concat(each.file, ':', each.line, ' ', each.key, ' ', each.value, " -> ", name_of(each.verdict), ": ",
                  each.text, '\n');
  const ForeignLaunch& launch = read.launch;
  const auto number = [&](const char* name, const std::optional<int>& value) {
    if (value) all += concat("launch ", name, ' ', *value, '\n');
  };
  number("ranks", launch.ranks);
  number("machines", launch.machines);
  number("machine", launch.machine);
  number("port", launch.port);
  if (!launch.address.empty()) all += concat("launch address ", launch.address, '\n');
  if (!launch.gpus.empty()) all += concat("launch gpus ", launch.gpus, '\n');
  for (const NamedTree& tree : read.trees) {
    EXPECT_EQ(tree.root.line, 1);
    for (const YamlEntry& entry : tree.root.entries) {
      all += concat(tree.name, ':', entry.line, " makes ", entry.key, ": ", flow_text(entry.value));
      for (const YamlEntry& each : entry.value.entries)
        if (each.line != entry.line) all += concat(", ", each.key, " of ", each.line);
      all += '\n';
    }
  }
  for (std::size_t at = all.find(folder); at != std::string::npos; at = all.find(folder)) all.erase(at, folder.size());
  return all;
}

// The first word of a case is how many ranks train; the others are the user's own.
void expect_told(const std::string& cases_of) {
  const TemporaryFolder folder;
  write_text_file(folder / "beside.json",
                  "{\"train_micro_batch_size_per_gpu\": \"auto\", \"fp16\": {\"enabled\": true},\n"
                  " \"zero_optimization\": {\"stage\": 1}, \"gradient_clipping\": 0.5}\n");
  const std::vector<ToldCase> cases = read_told_cases(golden(concat("told/", cases_of, ".txt")));
  EXPECT_GT(cases.size(), 15u);
  for (const ToldCase& each : cases) {
    write_text_file(folder / "f", each.text);
    const ForeignTranslation read = translate_file(
        keel_keys(), folder / "f", Words(each.words.begin() + 1, each.words.end()), std::stoi(each.words.front()));
    EXPECT_EQ(told_by(read, folder.path() + "/"), each.told) << each.text;
  }
}

TEST(ForeignTold, OfBatchesAndNumbers) { expect_told("batches"); }
TEST(ForeignTold, OfStagesAndPlaces) { expect_told("stages"); }
TEST(ForeignTold, OfPrecisionsAndLossScales) { expect_told("precisions"); }
TEST(ForeignTold, OfDeepSpeedsOptimizers) { expect_told("optimizers"); }
TEST(ForeignTold, OfDeepSpeedsSchedulesAndLastRows) { expect_told("schedules"); }
TEST(ForeignTold, OfHyperparameters) { expect_told("hps"); }
TEST(ForeignTold, OfParameters) { expect_told("parameters"); }
TEST(ForeignTold, OfAcceleratesFiles) { expect_told("accelerate"); }
TEST(ForeignTold, OfShardsOfFsdp) { expect_told("fsdp"); }
TEST(ForeignTold, OfConfigurationsWithPredictions) { expect_told("configs"); }

}  // namespace
}  // namespace keel
