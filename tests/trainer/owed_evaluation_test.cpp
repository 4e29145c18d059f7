// A run that is asked to end waits for no evaluation: who goes on makes up the one that was due.

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

class OwedEvaluation : public ::testing::TestWithParam<int> {
 public:
  Config config(const std::string& name, const std::string& resume) const {
    return small_run(place, name,
                     {"strategy=zero2-fp32", "eval.every=2", "steps=6", "checkpoint.best=validation_loss",
                      "ema.decay=0.9", "resume=" + resume});
  }
  // The validation losses of a run that was asked to end after these steps, by step; one that comes twice is an error.
  static std::map<std::int64_t, double> losses_of(const Config& run) {
    std::map<std::int64_t, double> losses;
    std::istringstream lines(read_text_file(run.run + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const Json record = Json::parse(line); record.contains("validation_loss")) {
        const std::int64_t step = record.at("step").integer();
        EXPECT_TRUE(losses.emplace(step, record.at("validation_loss").number()).second) << "step " << step;
      }
    return losses;
  }

  TemporaryFolder place;
};
INSTANTIATE_TEST_SUITE_P(ByRanks, OwedEvaluation, ::testing::Values(1, 2, 3));

TEST_P(OwedEvaluation, IsMadeUpByWhoGoesOn) {
  const int n = GetParam();
  const Config whole = config("whole", "never");
  train_by(n, whole);
  const auto expected = losses_of(whole);
  ASSERT_EQ(expected.size(), 3U);
  for (const int stop : {3, 4, 6}) {
    const std::string name = concat("stopped-", stop);
    train_by(n, config(name, "never"), n == 1 ? stop : stop - 1);  // others hear of it with the next step
    EXPECT_FALSE(losses_of(config(name, "auto")).contains(stop)) << "a stop waits for none";
    train_by(n, config(name, "auto"));
    EXPECT_EQ(losses_of(config(name, "auto")), expected) << name;
    EXPECT_TRUE(weights_of(config(name, "auto")) == weights_of(whole)) << name;
    EXPECT_EQ(RunFolder(place / name).all_best(), RunFolder(place / "whole").all_best()) << name;
    const auto again = train_by(n, config(name, "auto"));
    EXPECT_NE(again[0]->messages.find("is done"), std::string::npos) << again[0]->messages;
    EXPECT_EQ(losses_of(config(name, "auto")), expected) << name << ", once more";
  }
}

}  // namespace
}  // namespace keel
