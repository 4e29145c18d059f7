#include "keel/trainer/compare.h"

#include <gtest/gtest.h>

#include <mutex>

#include "keel/dist/comm/run_ranks.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

std::vector<ComparedStrategy> compare_by(int n, const Config& config, const std::vector<std::string>& strategies) {
  std::vector<ComparedStrategy> results;
  run_ranks(n, [&](Communicator& ranks) {
    Recorder recorder;
    const auto mine = compare_strategies(config, strategies, 4, recorder, ranks);
    if (ranks.rank() == 0) results = mine;
  });
  return results;
}

TEST(Compare, FindsTheSameWeightsInAllStagesAndBytesByFormula) {
  const TemporaryFolder place;
  for (const int n : {1, 2, 3, 4})
    for (const std::string& more : {std::string("batch.micro=3"), std::string("batch.micro=1")}) {
      const Config config = small_run(place, "run", {"batch.global=12", more, "sharding.reduce_each_backward=false"});
      const auto results = compare_by(n, config, {"ddp-bf16", "zero1-bf16", "zero2-bf16", "zero3-bf16"});
      ASSERT_EQ(results.size(), 4u);
      for (const ComparedStrategy& result : results) {
        EXPECT_EQ(result.fingerprint, results[0].fingerprint) << result.name << ", " << n << " ranks, " << more;
        EXPECT_EQ(result.loss, results[0].loss);
        EXPECT_EQ(result.sent, result.sent_by_formula) << result.name << ", " << n << " ranks, " << more;
        EXPECT_EQ(result.kept, result.kept_by_formula) << result.name << ", " << n << " ranks, " << more;
      }
      if (n > 1) { EXPECT_LT(results[3].kept, results[0].kept); }
    }
  EXPECT_FALSE(std::filesystem::exists(place / "run"));
}

TEST(Compare, TellsOtherNumbersApart) {
  const TemporaryFolder place;
  const auto results = compare_by(2, small_run(place, "run"), {"zero1-fp32", "zero1-bf16"});
  EXPECT_NE(results[0].fingerprint, results[1].fingerprint);
}

TEST(Compare, RefusesWhatItCannotCompare) {
  const TemporaryFolder place;
  EXPECT_THROW(compare_by(2, small_run(place, "run"), {"zero1-auto"}), Error);
  EXPECT_THROW(compare_by(2, small_run(place, "run"), {"zero7"}), Error);
  EXPECT_THROW(compare_by(7, small_run(place, "run"), {"ddp-fp32"}), Error);
}

}  // namespace
}  // namespace keel
