// Runs whose first steps choose sizes of buckets, prefetching and the algorithm of collectives.

#include <gtest/gtest.h>

#include "keel/trainer/metrics.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

// What a run has told of its choice: the values of its record.
std::vector<Json> tuned_records(const Config& config) {
  std::vector<Json> found;
  for (const Json& record : read_metrics(RunFolder(config.run).metrics()))
    for (const auto& [name, value] : record.members())
      if (name.starts_with("tuned/")) {
        found.push_back(record);
        break;
      }
  return found;
}

TEST(TunedRun, HasTheWeightsOfARunWithFixedSizesAndTellsOnceWhatItChose) {
  for (const auto& [strategy, axes] : std::vector<std::pair<const char*, std::vector<std::string>>>{
           {"ddp-fp32", {"algorithm"}}, {"zero3-bf16", {"algorithm", "prefetch"}}}) {
    const TemporaryFolder place;
    const auto settings = [&, name = strategy](const char* bucket) {
      return std::vector<std::string>{concat("strategy=", name), concat("sharding.bucket=", bucket), "steps=24"};
    };
    const Config fixed = small_run(place, "fixed", settings("25")), tuned = small_run(place, "tuned", settings("auto"));
    train_by(2, fixed);
    const auto told = train_by(2, tuned);
    EXPECT_TRUE(weights_of(fixed) == weights_of(tuned)) << strategy;
    EXPECT_TRUE(tuned_records(fixed).empty());
    const std::vector<Json> records = tuned_records(tuned);
    ASSERT_EQ(records.size(), 1u) << strategy;
    EXPECT_NE(told[0]->messages.find("sharding.bucket=auto has chosen"), std::string::npos) << told[0]->messages;
    for (const std::string& axis : axes) {
      const std::string chosen = records[0].at(concat("tuned/", axis)).string();
      EXPECT_NE(records[0].at(concat("tuned/", axis, "/tried")).string().find(chosen + ' '), std::string::npos) << axis;
    }
  }
}

TEST(TunedRun, MeasuresAnewWhereItGoesOn) {
  const TemporaryFolder place;
  const std::vector<std::string> settings = {"strategy=zero1-fp32", "sharding.bucket=auto", "steps=32"};
  train_by(2, small_run(place, "whole", settings));
  train_by(2, small_run(place, "parts", settings), 15);
  EXPECT_EQ(tuned_records(small_run(place, "parts")).size(), 1u);
  std::vector<std::string> more = settings;
  more.push_back("resume=auto");
  train_by(2, small_run(place, "parts", more));
  EXPECT_TRUE(weights_of(small_run(place, "parts")) == weights_of(small_run(place, "whole")));
  EXPECT_EQ(tuned_records(small_run(place, "parts")).size(), 2u);
}

TEST(TunedRun, IsWrittenAsAutoInConfigurations) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"sharding.bucket=auto"});
  EXPECT_TRUE(config.sharding.tunes());
  EXPECT_NE(to_yaml(config).find("bucket: auto"), std::string::npos) << to_yaml(config);
  const std::string said = error_of([&] { small_run(place, "run", {"sharding.bucket=0"}); });
  EXPECT_NE(said.find("expects a number > 0, or auto"), std::string::npos) << said;
}

}  // namespace
}  // namespace keel
